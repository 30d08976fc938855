"""DDP317: A line such as `1/0`, which stops "Run all", becomes `sys.exit()`."""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from nb2ddp.facts.execution import Phase
from nb2ddp.facts.program import Program
from nb2ddp.rules.rule import Finding, rule
from nb2ddp.syntax.edits import Replace

_EARLY = ", without training: take the line out to go on"


@rule("DDP317")
def stopped_on_purpose(program: Program) -> Iterator[Finding]:
    for statement in filter(program.names.is_stop, program.tree.live(cst.Expr)):
        early = program.execution.runs(statement, Phase.BEFORE | Phase.BETWEEN)
        said = "the notebook stops here on purpose, and so does the script" + (_EARLY if early else "")
        yield Finding(statement, said, (Replace(statement, "sys.exit()"),), todo=early)
