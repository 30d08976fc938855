"""The weights of an adapter that a vLLM server gets: by TRL's walk over a PEFT model, and by the script's walk."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest

from nb2ddp.convert import convert_source
from nb2ddp.options import Options
from tests.notebooks import text

pytestmark = pytest.mark.e2e

NOTEBOOK = text(
    """\
from unsloth import FastLanguageModel
from trl import GRPOConfig, GRPOTrainer
model, tokenizer = FastLanguageModel.from_pretrained("unsloth/Qwen3-4B", load_in_4bit = False, fast_inference = True)
trainer = GRPOTrainer(model = model, args = GRPOConfig(max_steps = 60))
trainer.train()
"""
)


def walk_of_script(monkeypatch: pytest.MonkeyPatch) -> Callable[[Any], Iterator[tuple[str, Any]]]:
    """Return the walk with which a script replaces TRL's."""
    import torch
    from trl.generation.vllm_generation import VLLMGeneration

    from nb2ddp.runtime.server import send_copies_of_weights

    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    monkeypatch.setattr(VLLMGeneration, "_iter_named_params", VLLMGeneration._iter_named_params)  # and restore it
    send_copies_of_weights()
    walk: Callable[[Any], Iterator[tuple[str, Any]]] = VLLMGeneration._iter_named_params
    return walk


def test_a_script_sends_copies() -> None:
    script = convert_source(NOTEBOOK, options=Options(vllm_server=True)).files["train.py"]
    assert "\nsend_copies_of_weights()\nuse_one_stream()\n\n# %% " in script


def test_a_server_gets_the_adapter(monkeypatch: pytest.MonkeyPatch) -> None:
    import torch
    from peft import LoraConfig, get_peft_model
    from transformers import LlamaConfig, LlamaForCausalLM
    from trl.generation.vllm_generation import VLLMGeneration

    config = LlamaConfig(
        vocab_size=64, hidden_size=16, intermediate_size=32, num_hidden_layers=1, num_attention_heads=2
    )
    model: Any = get_peft_model(
        LlamaForCausalLM(config), LoraConfig(target_modules=["q_proj"], init_lora_weights=False)
    )
    generation = object.__new__(VLLMGeneration)
    generation.model = model
    generation._dist = SimpleNamespace(gather_params=lambda _: nullcontext(), is_fsdp=False)
    base = {name: weight.clone() for name, weight in model.base_model.model.state_dict().items()}
    merged = with_adapter(model, base)

    by_trl = dict(list(VLLMGeneration._iter_named_params(generation)))  # collects all before one is packed
    by_script = dict(list(walk_of_script(monkeypatch)(generation)))
    name = "model.layers.0.self_attn.q_proj.weight"
    assert by_trl.keys() == by_script.keys()
    torch.testing.assert_close(by_trl[name], base["model.layers.0.self_attn.q_proj.base_layer.weight"])
    torch.testing.assert_close(by_script[name], merged)
    assert not torch.allclose(by_trl[name], by_script[name])


def with_adapter(model: Any, base: dict[str, Any]) -> Any:
    """Return the only weight that has an adapter, with the adapter added."""
    layer = model.base_model.model.model.layers[0].self_attn.q_proj
    return base["model.layers.0.self_attn.q_proj.base_layer.weight"] + layer.get_delta_weight("default").detach()
