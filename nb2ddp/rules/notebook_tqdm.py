"""DDP313: `tqdm.notebook` becomes `tqdm`."""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from nb2ddp.facts.program import Program
from nb2ddp.rules.rule import Finding, rule
from nb2ddp.syntax.edits import Replace

_MESSAGE = "tqdm.notebook draws in a notebook; the script takes the tqdm of terminals"


@rule("DDP313")
def notebook_progress_bar(program: Program) -> Iterator[Finding]:
    tree = program.tree
    for attribute in tree.of(cst.Attribute):
        if tree.text(attribute) == "tqdm.notebook":
            owner = tree.parents[attribute]
            place = owner if isinstance(owner, (cst.ImportAlias, cst.ImportFrom)) else attribute
            yield Finding(place, _MESSAGE, (Replace(attribute, "tqdm"),))
    for statement in tree.of(cst.ImportFrom):
        is_tqdm = statement.module is not None and tree.text(statement.module) == "tqdm"
        names = () if isinstance(statement.names, cst.ImportStar) or not is_tqdm else statement.names
        for alias in names:
            name = alias.evaluated_alias or alias.evaluated_name
            if alias.evaluated_name == "tqdm_notebook":
                yield Finding(alias, _MESSAGE, (Replace(alias, f"tqdm as {name}"),))
            elif alias.evaluated_name == "notebook" and len(names) == 1:
                yield Finding(alias, _MESSAGE, (Replace(statement, f"import tqdm as {name}"),))
