"""DDP002: a notebook that trains nothing has nothing to distribute."""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from nb2ddp.facts.program import Program
from nb2ddp.results import Severity
from nb2ddp.rules.rule import Example, Finding, Rule


def find(program: Program) -> Iterator[Finding]:
    training, module = program.training, program.tree.module
    place: cst.CSTNode = module.body[0] if module.body else module
    if training.events or not module.body:
        return
    if backward_calls(program):
        return  # DDP003
    if training.calls:
        yield Finding(training.calls[0], "this training stands in a function that the notebook never calls")
    elif training.trainers:
        yield Finding(training.trainers[0], "this trainer is built, but the notebook never calls its train()")
    else:
        yield Finding(
            place,
            "no training was found: only train() of a Trainer (transformers, TRL, Unsloth, sentence-transformers)"
            " can be distributed, and not inside an imported function or a child process",
        )


def backward_calls(program: Program) -> list[cst.Call]:
    """Live calls of `loss.backward()`."""
    return [
        call
        for call in program.tree.of(cst.Call)
        if isinstance(call.func, cst.Attribute) and call.func.attr.value == "backward" and program.tree.is_live(call)
    ]


RULE = Rule(
    code="DDP002",
    name="no-training",
    summary="A notebook without a training call is refused.",
    why="DDP distributes training. Every process of an inference notebook would do the same work.",
    find=find,
    severity=Severity.ERROR,
    examples=(
        Example('model.generate(**inputs)\nprint("done")\n', reported=True),
        Example("from trl import SFTTrainer\ndef run():\n    SFTTrainer(model).train()\n", reported=True),
        Example("trainer.train()\n"),
    ),
)
