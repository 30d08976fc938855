"""A warning names a cell that failed when the notebook was saved, if the training needs it."""

import json
from typing import Any

import pytest

from nb2ddp.convert import convert_source

_TRAINING = "from trl import SFTTrainer\ntrainer = SFTTrainer(model)\ntrainer.train()\n"


def _warned(failing: str, error: str, value: str) -> list[str]:
    saved = {"output_type": "error", "ename": error, "evalue": value}
    sources = ("model = load()\n", _TRAINING, "model.save_pretrained('lora')\n")
    cells: list[dict[str, Any]] = [
        {"cell_type": "code", "metadata": {}, "execution_count": 1, "outputs": [saved] * (s == failing), "source": s}
        for s in sources
    ]
    text = json.dumps({"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 4})
    found = convert_source(text, "notebook", "notebook.py").diagnostics
    return [f"{each.location}: {each.message}" for each in found if each.code == "DDP008"]


def test_the_error_of_a_training_is_said() -> None:
    (warning,) = _warned(_TRAINING, "AttributeError", "no attribute 'vllm_engine'\nin file x")
    assert warning.startswith("cell 2:1:1: ")
    assert "(AttributeError: no attribute 'vllm_engine' in file x)" in warning


def test_a_long_error_is_cut() -> None:
    (warning,) = _warned(_TRAINING, "ValueError", "too long " * 20)
    assert warning.count("too long") < 10
    assert "...)" in warning


@pytest.mark.parametrize(
    ("failing", "error", "text"),
    [
        (_TRAINING, "KeyboardInterrupt", ""),
        (_TRAINING, "RuntimeError", "CUDA error: out of memory"),
        (_TRAINING, "torch.OutOfMemoryError", "tried to allocate"),
        (_TRAINING, "HfHubHTTPError", f"server error for {'x' * 90}\nNo space left on device"),
        (_TRAINING, "", ""),
        ("model = load()\n", "NameError", "name 'load' is not defined"),
        ("model.save_pretrained('lora')\n", "OSError", "the disk is full"),
    ],
)
def test_what_the_script_does_not_repeat_is_not(failing: str, error: str, text: str) -> None:
    assert _warned(failing, error, text) == []
