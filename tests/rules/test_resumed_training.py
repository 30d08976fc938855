"""What a second training is said to train follows from the checkpoint that it begins at."""

from __future__ import annotations

import pytest

from nb2ddp.facts.program import Program
from nb2ddp.options import Options
from nb2ddp.rules.resumed_training import RULE
from tests.notebooks import example_notebook

TRAINING = (
    "from trl import SFTConfig\nargs = SFTConfig({})\ntrainer.train()\ntrainer.train(resume_from_checkpoint = {})\n"
)
LAST = "resumes from the last checkpoint of the training above, which is finished"


@pytest.mark.parametrize(
    ("arguments", "checkpoint", "begins"),
    [
        ("max_steps = 60", "True", LAST),
        ("max_steps = 60", '"out/checkpoint-60"', LAST),
        (
            "max_steps = 700",
            '"out/checkpoint-60"',
            "goes back to step 60 of the training above, and trains steps 61 to 700",
        ),
        ("num_train_epochs = 1", '"out/checkpoint-60/"', "goes back to step 60 of the training above, and trains all"),
        ("max_steps = 60", "newest", "goes back to a checkpoint of the training above, and trains all steps after it"),
    ],
)
def test_what_a_second_training_trains(arguments: str, checkpoint: str, begins: str) -> None:
    program = Program(example_notebook(TRAINING.format(arguments, checkpoint)), Options())
    assert [finding.message.startswith(begins) for finding in RULE.find(program)] == [True]
