"""DDP317: a cell that stops the notebook on purpose ends the script."""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from nb2ddp.facts.execution import Phase
from nb2ddp.facts.program import Program
from nb2ddp.rules.rule import Example, Finding, Rule
from nb2ddp.syntax.edits import Replace

_EARLY = ", without training: take the line out to go on"


def find(program: Program) -> Iterator[Finding]:
    for statement in filter(program.names.is_stop, program.tree.live(cst.Expr)):
        early = program.execution.runs(statement, Phase.BEFORE | Phase.BETWEEN)
        said = "the notebook stops here on purpose, and so does the script" + (_EARLY if early else "")
        yield Finding(statement, said, (Replace(statement, "sys.exit()"),), todo=early)


RULE = Rule(
    code="DDP317",
    name="stopped-on-purpose",
    summary='A line such as `1/0`, which stops "Run all", becomes `sys.exit()`.',
    why=(
        "The cells below it are not meant to run with the rest: an upload, a second training. Without an exception, "
        "the launcher reports a finished job."
    ),
    find=find,
    examples=(
        Example(
            "trainer.train()\n# %%\n1/0  # the rest is for later\n# %%\nupload(model)\n",
            "trainer.train()\n# %%\nsys.exit()  # the rest is for later\n# %%\nupload(model)\n",
        ),
        Example("trainer.train()\n# %%\nSTOP\n", "trainer.train()\n# %%\nsys.exit()\n"),
        Example(
            "STOP\n# %%\ntrainer.train()\n",
            "# TODO[nb2ddp] DDP317: the notebook stops here on purpose, and so does the script, without training: take"
            " the line out to go on\n"
            "sys.exit()\n# %%\ntrainer.train()\n",
        ),
        Example("later\n# %%\nlater = 1\n"),
        Example('dataset\n# %%\nprint(dataset["text"])\n'),
    ),
)
