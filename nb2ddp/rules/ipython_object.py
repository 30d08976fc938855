"""DDP315: `get_ipython()` becomes None; a line that asks it for something gets a `TODO`."""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from nb2ddp.facts.program import Program
from nb2ddp.rules.rule import Finding, rule
from nb2ddp.syntax.edits import Replace

_NAMES = ("get_ipython", "IPython.get_ipython", "IPython.core.getipython.get_ipython")


@rule("DDP315")
def ipython_object(program: Program) -> Iterator[Finding]:
    tree = program.tree
    for call in tree.of(cst.Call):
        name = tree.qualified(call.func)
        if name not in _NAMES or call.args or program.installs.covers(call):
            continue
        if isinstance(tree.parents[call], (cst.Attribute, cst.Subscript)):
            said = "get_ipython() is None in a script, so this fails: write what it does in Python"
            yield Finding(call, said, (Replace(call, "None"),), todo=True)
        else:
            yield Finding(call, "get_ipython() works in a notebook only; the script has None", (Replace(call, "None"),))
