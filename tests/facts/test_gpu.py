"""The GPU for which a notebook's batch was chosen: saved outputs come before texts, and texts before metadata."""

from __future__ import annotations

from typing import Any

import pytest

from nb2ddp.facts.program import Program
from nb2ddp.notebook.reader import read_notebook
from nb2ddp.options import Options
from nb2ddp.rules import batch
from tests.examples import rows
from tests.notebooks import CELLS, code, markdown, text

ON_T4: dict[str, Any] = {"colab": {"gpuType": "T4"}}
FOR_L4 = markdown("To run this, press *Run all* on an L4 Google Colab instance!")
TOO_SMALL = {"output_type": "error", "ename": "OutOfMemoryError", "evalue": "CUDA out of memory.", "traceback": []}


def gpu_of(*cells: object, model: str = "unsloth/Llama-3.2-1B", **metadata: Any) -> str:
    load = CELLS[1].replace("unsloth/Llama-3.2-1B", model)
    notebook = read_notebook(text(*cells, load, *CELLS[2:], metadata=metadata), "sft")  # type: ignore[arg-type]
    return str(Program(notebook, Options()).gpu)


def shown(output: str | list[str]) -> dict[str, object]:
    return code("shown()", outputs=[{"output_type": "stream", "name": "stdout", "text": output}])


SPLIT = (["GPU = NVIDIA A100-SXM4-", "40GB. Max memory = 39.557 GB.\n"], ["40 GB (A100)"])


@pytest.mark.parametrize(("output", "answers"), [*rows(__file__, "outputs"), SPLIT])
def test_saved_outputs_come_first(output: str | list[str], answers: list[str]) -> None:
    assert [gpu_of(FOR_L4, shown(output), **ON_T4)] == answers


def test_the_last_gpu_before_the_training_counts() -> None:
    large, small = (
        f"GPU = NVIDIA {name}. Max memory = {size} GB." for name, size in (("A100", 39.557), ("L4", 22.161))
    )
    assert gpu_of(shown(large), shown(small)) == "23 GB (L4)"
    assert gpu_of(shown(small), shown(large)) == "40 GB (A100)"


def test_a_gpu_that_was_too_small_does_not_count() -> None:
    cells = shown("Max memory = 4.0 GB."), code("trainer.train()", outputs=[TOO_SMALL])
    assert gpu_of(*cells) == gpu_of(*cells, colab={"gpuType": "V100"}) == gpu_of(FOR_L4, *cells) == "None"


def test_an_error_behind_the_training_says_nothing_of_its_gpu() -> None:
    merged = code('model.save_pretrained_merged("merged", tokenizer)', outputs=[TOO_SMALL])
    train = "def go():\n    trainer.train()", "go()"
    notebook = text(*CELLS[:-1], *train, merged, metadata=ON_T4)
    assert str(Program(read_notebook(notebook, "sft"), Options()).gpu) == "15 GB (T4)"
    stopped = text(*CELLS[:-1], train[0], code(train[1], outputs=[TOO_SMALL]), metadata=ON_T4)
    program = Program(read_notebook(stopped, "sft"), Options())
    assert program.gpu is None
    comments = [
        edit.text for finding in batch.batch_not_split.find(program) for edit in finding.edits if hasattr(edit, "text")
    ]
    assert any(text.endswith("# 8 samples a step in the notebook, whose GPU ran out of memory") for text in comments)


def test_text_comes_before_metadata() -> None:
    assert gpu_of(FOR_L4, colab={"gpuType": "A100"}) == "23 GB (L4)"
    assert gpu_of(colab={"gpuType": "A100"}) == "40 GB (A100)"
    assert gpu_of() == "None"
    assert gpu_of(markdown("**Target:** H200 (141 GB HBM3e)"), colab={"gpuType": "T4"}) == "140 GB (H200)"


@pytest.mark.parametrize(("line", "answers"), rows(__file__, "texts"))
def test_what_ties_a_gpu_to_the_notebook(line: str, answers: list[str]) -> None:
    assert [gpu_of(markdown(f"Hello.\n{line}\nBye."))] == answers


@pytest.mark.parametrize(
    ("model", "gpu"),
    [
        ("unsloth/Qwen3-30B-A3B-bnb-4bit", "23 GB (L4)"),
        ("unsloth/Llama-3.3-70B-Instruct", "40 GB (A100)"),
        ("mistralai/Mixtral-8x22B", "None"),
    ],
)
def test_a_gpu_that_cannot_hold_the_weights_is_not_believed(model: str, gpu: str) -> None:
    assert gpu_of(FOR_L4, model=model, colab={"gpuType": "A100"}) == gpu


def test_sixteen_bits_take_two_bytes_a_weight() -> None:
    whole = 'unsloth/Qwen3-14B", load_in_4bit = False, max_seq_length = "2048'
    assert gpu_of(FOR_L4, model=whole, colab={"gpuType": "A100"}) == "40 GB (A100)"


@pytest.mark.parametrize("bits", ["load_in_4bit = True", "load_in_8bit = True", "load_in_4bit = False"])
def test_full_finetuning_is_in_sixteen_bits_whatever_else_is_asked_for(bits: str) -> None:
    model = f'unsloth/Qwen3-8B", {bits}, full_finetuning = {{}}, max_seq_length = "2048'
    assert gpu_of(model=model.format(True), **ON_T4) == "None"
    small = "unsloth/Qwen3-4B" if bits.endswith("False") else "unsloth/Qwen3-8B"
    assert gpu_of(model=model.format(False).replace("unsloth/Qwen3-8B", small), **ON_T4) == "15 GB (T4)"
