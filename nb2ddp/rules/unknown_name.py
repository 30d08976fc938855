"""DDP005: names that the notebook uses and never defines, or defines only later."""

from __future__ import annotations

import builtins
from collections.abc import Iterator

from nb2ddp.facts.program import Program
from nb2ddp.notebook.magics import Kind
from nb2ddp.results import Severity
from nb2ddp.rules.rule import Example, Finding, Rule

_KNOWN = frozenset(dir(builtins)) | {
    "__file__", "__name__", "__doc__", "display", "get_ipython", "In", "Out", "exit", "quit", "__ipython__",
}  # fmt: skip


def find(program: Program) -> Iterator[Finding]:
    tree = program.tree
    if tree.has_star_import:
        return
    seen = {word for _, form in program.forms_of(Kind.CELL_MAGIC) for word in form.text.split()}  # %%capture name
    seen |= {
        form.text.split("=")[0].strip() for _, form in program.forms_of(Kind.LINE_MAGIC) if "=" in form.text
    }  # %time x = f()
    for name in sorted(set(tree.names_read)):
        for use in tree.loads(name):
            if name in _KNOWN or name in seen or not tree.is_live(use) or program.installs.covers(use):
                continue
            if tree.binding(use) is None:
                seen.add(name)
                later = tree.bindings(name)
                said = "is defined only further down: the cells are out of order" if later else "is never defined"
                yield Finding(use, f"{name!r} {said}")


RULE = Rule(
    code="DDP005",
    name="unknown-name",
    summary="A name that the notebook never defines, or defines only further down, is reported.",
    why="A notebook's kernel may still know it from a cell that is gone or was run earlier. A script starts with"
    " nothing.",
    find=find,
    severity=Severity.WARNING,
    examples=(
        Example("trainer = build(model)\ntrainer.train()\n", reported=True),
        Example("import os\nrows = [row for row in os.listdir()]\nprint(len(rows))\n"),
    ),
)
