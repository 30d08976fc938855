"""Public notebooks, converted and run for real: as one process, and as two.

They are looked for, as .ipynb or as marimo's .py, in the folder that the environment variable NB2DDP_CORPUS names. A
few of different constructs are run (2 minutes); with NB2DDP_CORPUS_TRAIN=all every one that Unsloth's CPU backend
trains (15 minutes). Why it does not train the others is said in docs/measurements.md. `pytest -rP` shows the
differences of the losses.

The notebook is converted as it is, and the script then made shorter: see `shortened`.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from nb2ddp.api import convert_file

from .corpus_hub import build
from .runner import Run, difference, run

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.skipif("NB2DDP_CORPUS" not in os.environ, reason="NB2DDP_CORPUS names no folder of public notebooks"),
]

STEPS = 3
A_FEW = (
    "Mistral_v0.3_(7B)-CPT",  # two trainings, embeddings trained, a random part of the data
    "Phi_3.5_Mini-Conversational",  # fields of the trainer as keywords of an older TRL
    "gpt-oss-(20B)-Fine-tuning",  # experts, generation before training, answers alone
)
FURTHER = (
    "ERNIE_4_5_21B_A3B_PT-Conversational",
    "Falcon_H1-Alpaca",
    "Falcon_H1_(0.5B)-Alpaca",
    "Gemma2_(2B)-Alpaca",
    "Gemma3N_(4B)-Conversational",
    "Gemma3_(27B)_A100-Conversational",
    "Gemma4_(12B)_Text",
    "Gemma4_(26B_A4B)-Text",
    "Gemma4_(31B)-Text",
    "Gemma4_(E2B)-Text",
    "Gemma4_(E4B)-Text",
    "Granite4.0_350M",
    "LFM2.5_(1.2B)-Conversational",
    "Liquid_LFM2-Conversational",
    "Liquid_LFM2_(1.2B)-Conversational",
    "Llama3.1_(8B)-Alpaca",
    "Llama3.3_(70B)_A100-Conversational",
    "Llama3_(8B)-Alpaca",
    "Magistral_(24B)-Reasoning-Conversational",
    "Mistral_Small_(22B)-Alpaca",
    "Muse_Glimmer_(30B)-Conversational",
    "Phi_3_Medium-Conversational",
    "Qwen2.5_Coder_(14B)-Conversational",
    "Qwen2_(7B)-Alpaca",
    "Qwen3_(14B)-Alpaca",
    "Qwen3_(14B)-Reasoning-Conversational",
    "Qwen3_(4B)-Instruct",
    "Qwen3_(4B)_Instruct-QAT",
    "Qwen_3_5_27B_A100(80GB)",
    "TinyQwen3_MoE",
)
NOTEBOOKS = (*A_FEW, *FURTHER) if os.environ.get("NB2DDP_CORPUS_TRAIN") == "all" else A_FEW
# What the CPU backend cannot do after the training, by the end of the error.
CANNOT_END = {"Qwen3_(4B)_Instruct-QAT": "has no attribute 'save_pretrained_torchao'"}


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tiny hub of the public notebooks, built once; a run gets a copy."""
    return build(tmp_path_factory.mktemp("corpus_hub"))


def shortened(script: str) -> str:
    """A script with `STEPS` steps in each training, all of them logged, and few generated tokens.

    One sample a step, which two processes cannot share, becomes two. A file that the notebook fetches from a data set's
    address is read from the hub.
    """
    for name, value in (("max_steps", STEPS), ("logging_steps", 1), ("max_new_tokens", 8)):
        script = re.sub(rf"\b({name}\s*=\s*)\d+", rf"\g<1>{value}", script)
    script = script.replace("split_batch(1, 1)", "split_batch(1, 2)")
    return script.replace("https://huggingface.co/datasets/", "")


def problems(name: str, result: Run) -> list[str]:
    """What a run of this notebook must not show."""
    known = CANNOT_END.get(name)
    return [problem for problem in result.problems() if not known or known not in problem]


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_two_processes_train_as_one_does(name: str, hub: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = Path(os.environ["NB2DDP_CORPUS"])
    notebook = next((path for path in (folder / f"{name}.ipynb", folder / f"{name}.py") if path.is_file()), None)
    if notebook is None:
        pytest.skip("not among the public notebooks of NB2DDP_CORPUS")
    for protocol in ("http", "https"):
        monkeypatch.setenv(f"{protocol}_proxy", "http://127.0.0.1:9")  # nothing is fetched, and nothing waits for it
    script = tmp_path / "train.py"
    convert_file(notebook, script)
    script.write_text(shortened(script.read_text()))
    alone, both = (run(script, hub, tmp_path / str(n), n, cuda_is_cpu=True) for n in (1, 2))
    for result in (alone, both):
        assert problems(name, result) == []
        assert {len(training) for training in result.trainings} == {STEPS}
    assert both.ranks[1].trainings, "the second process did not train"
    print(f"losses differ by {difference(alone, both):.1e}")
    assert difference(alone, both) < 1e-3
