"""DDP010: What Python takes at the top of a cell, but not within a script, is moved or left out.

`from __future__ import annotations` may stand in any cell, in a script on its first lines alone: it moves there. A
`global` outside of functions changes nothing, but Python refuses it below another use of the name: there it goes.
"""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from nb2ddp.facts.program import Program
from nb2ddp.rules.rule import Example, Finding, Rule
from nb2ddp.syntax.edits import AddToSetup, Remove
from nb2ddp.syntax.tree import Tree

_FUTURE = "Python takes this import on the first lines of a script alone; the script has it there"
_GLOBAL = "a global outside of functions does nothing, and Python refuses it below a use of it; the script drops it"


def find(program: Program) -> Iterator[Finding]:
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


RULE = Rule(
    name="only-in-a-cell",
    find=find,
    also_alone=True,
    examples=(
        Example("rows = 1\n# %%\nfrom __future__ import annotations\nprint(rows)\n", "rows = 1\n# %%\nprint(rows)\n"),
        Example(
            "rows = load()\n# %%\nif not rows:\n    global rows\n    rows = more()\n",
            "rows = load()\n# %%\nif not rows:\n    rows = more()\n",
        ),
        Example("global rows\nrows = load()\n"),
        Example("steps = 0\ndef count():\n    global steps\n    steps += 1\n"),
    ),
)
