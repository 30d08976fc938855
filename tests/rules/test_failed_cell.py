"""A cell that failed when the notebook was saved is said, where the training needs it."""

import json
from typing import Any

import pytest

from nb2ddp.convert import convert_source

_TRAINING = "from trl import SFTTrainer\ntrainer = SFTTrainer(model)\ntrainer.train()\n"


def _warned(failing: str, error: str, said: str, traceback: str = "") -> list[str]:
    saved = {"output_type": "error", "ename": error, "evalue": said, "traceback": traceback.split("\n")}
    sources = ("model = load()\n", _TRAINING, "model.save_pretrained('lora')\n")
    cells: list[dict[str, Any]] = [
        {"cell_type": "code", "metadata": {}, "execution_count": 1, "outputs": [saved] * (s == failing), "source": s}
        for s in sources
    ]
    text = json.dumps({"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 4})
    found = convert_source(text, "notebook", "notebook.py").diagnostics
    return [f"{each.location}: {each.message}" for each in found if each.code == "DDP008"]


def test_the_error_of_a_training_is_said() -> None:
    (said,) = _warned(_TRAINING, "AttributeError", "no attribute 'vllm_engine'\nin file x")
    assert said.startswith("cell 2:1:1: ")
    assert "(AttributeError: no attribute 'vllm_engine' in file x)" in said


def test_a_long_error_is_cut() -> None:
    (said,) = _warned(_TRAINING, "ValueError", "too long " * 20)
    assert said.count("too long") < 10
    assert "...)" in said


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


_HEAD = "\x1b[0;31m---------\x1b[0m\nValueError          Traceback (most recent call last)\n"
_LIBRARY = "\nFile /lib/trl.py:9, in train(self)\n      8 def train(self):\n----> 9     raise ValueError('no rows')\n"


@pytest.mark.parametrize(
    "head", ["Cell \x1b[0;32mIn[3]\x1b[0m, line 2", "/tmp/ipython-input-3-1.py in <cell line: 0>()"]
)
@pytest.mark.parametrize(
    ("line", "is_said"),
    [
        ("trainer.train()", True),
        ("\x1b[0mtrainer\x1b[0m\x1b[0;34m.\x1b[0mtrain()", True),
        ("trainer.train(resume_from_checkpoint=True)", False),
        ("train()", False),
        ("get_ipython().system('python train.py')", True),
    ],
)
def test_the_error_of_a_line_that_was_changed_since_is_not(head: str, line: str, is_said: bool) -> None:
    frame = f"{head}\n      1 from trl import SFTTrainer\n\x1b[0;32m----> 2\x1b[0m {line}\n{_LIBRARY}"
    assert bool(_warned(_TRAINING, "ValueError", "no rows", f"{_HEAD}{frame}\nValueError: no rows")) == is_said
    led = (
        f"{_HEAD}Cell In[2], line 9\n----> 9 rows[0]\n\nKeyError: 0\n\nDuring handling of the above exception, another"
    )
    assert bool(_warned(_TRAINING, "ValueError", "no rows", f"{led}:\n\n{_HEAD}{frame}")) == is_said


def test_a_traceback_that_does_not_show_the_cell_tells_nothing_of_its_change() -> None:
    assert _warned(_TRAINING, "ValueError", "no rows", _HEAD + _LIBRARY.lstrip())
    assert _warned(_TRAINING, "SyntaxError", "invalid", "  Cell In[3], line 2\n    trainer.train(\n    ^")
