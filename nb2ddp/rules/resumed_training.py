"""DDP208: A second `train()` that resumes the first training gets a warning.

A notebook keeps such a cell for a session that was cut off, and a person runs one of the two. A script runs both. The
checkpoint decides what the second one trains (transformers 4.56.2 and 5.17): `checkpoint-2` of a training of 6 steps
repeats steps 3 to 6. `True` means the last checkpoint: no step if the training ended with an epoch, a seventh step if
`max_steps = 6` ended it.
"""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from nb2ddp.facts.program import Program
from nb2ddp.results import Severity
from nb2ddp.rules.rule import Example, Finding, Rule
from nb2ddp.syntax.tree import Tree, argument, method

_MESSAGE = (
    "resumes from a checkpoint of the training above, which is finished: transformers trains the steps after it a"
    " second time, or none; a notebook keeps such a line for a session that was cut off: keep one of the two trainings"
)


def find(program: Program) -> Iterator[Finding]:
    tree, events = program.tree, program.training.events
    calls = [call for call in program.training.calls if call in events and method(call) == "train"]
    for number, call in enumerate(calls):
        resumed = argument(call, "resume_from_checkpoint", 0)
        checkpoint = None if resumed is None else tree.literal(resumed.value)
        if checkpoint not in (None, False) and any(_goes_on(tree, before, call) for before in calls[:number]):
            yield Finding(call, _MESSAGE, todo=str(checkpoint).startswith("/"))  # no folder of this job


def _goes_on(tree: Tree, before: cst.Call, call: cst.Call) -> bool:
    """True for two trainings of one trainer, which nothing changes between them, and that both run."""
    name = tree.text(call.func).removesuffix(".train")
    if tree.text(before.func) != tree.text(call.func) or tree.top_statement(before) is tree.top_statement(call):
        return False
    start, end = tree.span(before)[1], tree.start(call)
    changed = [tree.text(target) for target in tree.targets(tree.module) if start <= tree.start(target) < end]
    return not any(target == name or target.startswith(f"{name}.") for target in changed)


RULE = Rule(
    name="finished-training-resumed",
    find=find,
    severity=Severity.WARNING,
    examples=(
        Example(
            "trainer.train()\n# %%\n# if it freezes\ntrainer.train(resume_from_checkpoint = True)\n", reported=True
        ),
        Example(
            "from trl import SFTConfig\nargs = SFTConfig(max_steps = 700)\ntrainer.train()\n# %%\n"
            'trainer.train(resume_from_checkpoint = "outputs/checkpoint-60")\n',
            reported=True,
        ),
        Example(
            'trainer.train()\ntrainer.train(resume_from_checkpoint = "/path/to/checkpoint")\n',
            f"trainer.train()\n# TODO[nb2ddp] DDP208: {_MESSAGE}\n"
            'trainer.train(resume_from_checkpoint = "/path/to/checkpoint")\n',
        ),
        Example("trainer.train()\ntrainer.args.num_train_epochs = 2\ntrainer.train(resume_from_checkpoint = True)\n"),
        Example("if resume:\n    trainer.train(resume_from_checkpoint = True)\nelse:\n    trainer.train()\n"),
        Example("trainer.train()\ntrainer.train()\n"),
    ),
)
