"""DDP010: What Python takes at the top of a cell, but not within a script, is moved or left out."""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from nb2ddp.facts.program import Program
from nb2ddp.rules.rule import Finding, rule
from nb2ddp.syntax.edits import AddToSetup, Remove
from nb2ddp.syntax.tree import Tree

_FUTURE = "Python takes this import on the first lines of a script alone; the script has it there"
_GLOBAL = "a global outside of functions does nothing, and Python refuses it below a use of it; the script drops it"


@rule("DDP010", also_alone=True)
def only_in_a_cell(program: Program) -> Iterator[Finding]:
    tree = program.tree
    for future, *_ in tree.imports("__future__"):
        yield Finding(future, _FUTURE, (AddToSetup(tree.text(future), before_imports=True), Remove(future)))
    for line in tree.of(cst.Global):
        named = [item.name.value for item in line.names]
        if tree.scope(line) is tree.module and any(_is_used_above(tree, name, line) for name in named):
            yield Finding(line, _GLOBAL, (Remove(line, keep_comment=False),))


def _is_used_above(tree: Tree, name: str, line: cst.CSTNode) -> bool:
    """Whether the module itself binds or reads a name above a statement."""
    used = [*(each.node for each in tree.bindings(name)), *tree.loads(name)]
    return any(tree.start(use) < tree.start(line) and tree.function(use) is None for use in used)
