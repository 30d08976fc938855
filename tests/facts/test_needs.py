"""The needs of a job: one list for the whole notebook (`needs.txt`)."""

from __future__ import annotations

import pytest

from nb2ddp.facts.program import Program
from nb2ddp.options import Options
from tests.examples import rows
from tests.notebooks import CELL_BREAK, example_notebook

TRAIN = f"{CELL_BREAK}from trl import SFTTrainer\ntrainer = SFTTrainer(model)\ntrainer.train()\n"


def needs(code: str) -> list[str]:
    """Return the needs of a notebook; those that the script tests at its start end in `!`."""
    found = Program(example_notebook(code + TRAIN), Options()).needs
    return [f"{need}{'!' if need.required else ''}" for need in found]


@pytest.mark.parametrize(("code", "expected"), rows(__file__))
def test_needs(code: str, expected: list[str]) -> None:
    assert needs(code) == expected


def test_a_job_that_looks_for_its_checkpoints_needs_none() -> None:
    code = "from trl import SFTTrainer\ntrainer = SFTTrainer(model)\ntrainer.train(resume_from_checkpoint = True)\n"
    assert Program(example_notebook(code), Options(resume=True)).needs == []
