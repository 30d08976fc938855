"""DDP404: a training that one process may leave by an exception."""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from nb2ddp.model import Severity
from nb2ddp.program import Finding, Program
from nb2ddp.rule import Example, Rule


def find(program: Program) -> Iterator[Finding]:
    for call in program.training.calls:
        for above in program.tree.ancestors(call):
            if isinstance(above, cst.Try) and program.tree.within(above.body, cst.Call).count(call):
                swallowing = [h for h in above.handlers if not program.tree.within(h, cst.Raise)]
                if swallowing:
                    yield Finding(
                        call,
                        "an exception on one process leaves the others waiting for it until the job times out: let"
                        " it end "
                        "the script",
                        todo=True,
                    )
                break


RULE = Rule(
    code="DDP404",
    name="training-in-try",
    summary="`train()` inside a `try` that swallows exceptions gets a `TODO` above it.",
    why="If one process leaves the training by an exception and goes on, the others wait for it in the next"
    " collective. An "
    "exception that ends the script ends all processes.",
    find=find,
    severity=Severity.WARNING,
    examples=(
        Example(
            "try:\n    trainer.train()\nexcept KeyboardInterrupt:\n    pass\n",
            "try:\n    # TODO[nb2ddp] DDP404: an exception on one process leaves the others waiting for it until"
            " the job times "
            "out: let it end the script\n    trainer.train()\nexcept KeyboardInterrupt:\n    pass\n",
        ),
        Example("try:\n    trainer.train()\nexcept Exception:\n    print('failed')\n    raise\n"),
    ),
)
