"""DDP317: A line such as `1/0`, which stops "Run all", becomes `sys.exit()`.

The cells below it are not meant to run with the rest: an upload, a second training. Without an exception, the launcher
reports a finished job.
"""

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
    name="stopped-on-purpose",
    find=find,
    examples=(
        Example(
            "trainer.train()\n# %%\n1/0  # the rest is for later\n# %%\nupload(model)\n",
            "trainer.train()\n# %%\nsys.exit()  # the rest is for later\n# %%\nupload(model)\n",
        ),
        Example("trainer.train()\n# %%\nSTOP\n", "trainer.train()\n# %%\nsys.exit()\n"),
        Example("trainer.train()\nstop_here\nprint(1)\n", "trainer.train()\nsys.exit()\nprint(1)\n"),
        Example(
            "STOP\n# %%\ntrainer.train()\n",
            "# TODO[nb2ddp] DDP317: the notebook stops here on purpose, and so does the script, without training: take"
            " the line out to go on\n"
            "sys.exit()\n# %%\ntrainer.train()\n",
        ),
        Example("trainer.train()\n# %%\nb# the rows\nprint(rows)\n"),
        Example("later\n# %%\nlater = 1\n"),
        Example('dataset\n# %%\nprint(dataset["text"])\n'),
    ),
)
