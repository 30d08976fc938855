"""DDP414: Before each training the ranks compare their rows; where they differ, all take the main process's."""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from nb2ddp.facts.program import Program
from nb2ddp.rules.rule import Finding, rule
from nb2ddp.syntax.edits import InsertAbove

_SHARED = "each process may have prepared other rows; the script compares them, and takes the main process's"
_UNSEEN = "each process may train on other rows: write it as trainer.train(), so that the script can compare them"


@rule("DDP414")
def rows_of_each_process(program: Program) -> Iterator[Finding]:
    tree = program.tree
    if program.options.split_model:
        return
    for call in program.training.calls:
        owner, name = tree.member(call.func) or (call.args[0].value if call.args else call, "")
        if name in ("evaluate", "predict"):
            continue
        share, around = f"share_rows({tree.text(owner)})", tree.inside_statement(call)
        is_named = isinstance(owner, (cst.Name, cst.Attribute))
        if not is_named or any(isinstance(above, (cst.Lambda, cst.BaseComp)) for above in around):
            yield Finding(call, _UNSEEN, todo=True)
        elif all(tree.text(each) != share for each in tree.of(cst.Call)):
            yield Finding(call, _SHARED, (InsertAbove(tree.statement(call), share),))
