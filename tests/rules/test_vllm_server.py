"""A script that gets its completions from a vLLM server: how to start the two, and what a person has to do."""

from __future__ import annotations

import pytest

from nb2ddp.convert import convert_source
from nb2ddp.options import Launch, Options
from nb2ddp.results import Conversion
from tests.notebooks import CELLS, text

LOAD = """\
from unsloth import FastLanguageModel
model, tokenizer = FastLanguageModel.from_pretrained(
    model_name = "unsloth/Qwen3-4B",
    max_seq_length = 2048,
    load_in_4bit = {},
    fast_inference = True,
)
"""
TRAIN = """\
from trl import GRPOConfig, GRPOTrainer
args = GRPOConfig(vllm_sampling_params = sampling, max_steps = 60)
trainer = GRPOTrainer(model = model, args = args)
trainer.train()
"""
ASK = 'output = model.fast_generate("Hi", lora_request = model.load_lora("lora"))\nprint(output)\n'
TODO = "# TODO[nb2ddp] DDP210: "


def convert(four_bit: bool = False, processes: int = 1) -> Conversion:
    cells = ("sampling = None", LOAD.format(four_bit), TRAIN, ASK)
    return convert_source(text(*cells), options=Options(Launch(processes), vllm_server=True))


@pytest.mark.parametrize("processes", [1, 3])
def test_the_first_lines_start_the_server_on_one_more_gpu(processes: int) -> None:
    lines = convert(processes=processes).files["train.py"].splitlines()
    command = "trl vllm-serve --model unsloth/Qwen3-4B --max_model_len 2048"
    assert lines[2] == f"#   first:         CUDA_VISIBLE_DEVICES={processes} {command}"
    assert ("--num_processes 3" in lines[4]) == (processes == 3)


def test_a_model_that_a_person_chooses_is_left_open() -> None:
    load = LOAD.format(False).replace('"unsloth/Qwen3-4B"', '"unsloth/Qwen3-4B" if small else "unsloth/Qwen3-8B"')
    converted = convert_source(text("small = True", load, TRAIN), options=Options(Launch(1), vllm_server=True))
    assert "trl vllm-serve --model MODEL --max_model_len 2048" in converted.files["train.py"]


def test_no_process_has_an_engine_or_waits_for_one() -> None:
    script = convert().files["train.py"]
    assert "fast_inference = False," in script
    assert 'use_vllm = True, vllm_mode = "server"' in script
    assert "PartialState().destroy_process_group()" in script
    assert "UNSLOTH_DDP_TIMEOUT" not in script


def test_what_needs_an_engine_is_said() -> None:
    script = convert().files["train.py"]
    assert script.count(TODO) == 1
    assert f"{TODO}model.load_lora(...) needs an engine in the process" in script
    messages = [each.message for each in convert().diagnostics if each.code == "DDP210"]
    assert any(message.startswith("vllm_sampling_params does not reach a server") for message in messages)


def test_quantised_weights_are_said() -> None:
    assert f"{TODO}loads quantised weights" in convert(four_bit=True).files["train.py"]


def test_a_notebook_without_completions_stays() -> None:
    with_server, without = (convert_source(text(*CELLS), options=Options(vllm_server=each)) for each in (True, False))
    assert with_server.files["train.py"].count("\n") == without.files["train.py"].count("\n")
    assert not [each for each in with_server.diagnostics if each.code == "DDP210"]
