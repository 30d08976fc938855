"""DDP320: marimo's page output is removed; a widget and `mo.stop(...)` get a `TODO`."""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from nb2ddp.facts.program import Program
from nb2ddp.rules.rule import Finding, rule
from nb2ddp.syntax.edits import Remove

#: What waits for a person, and what to write instead.
_WAITS = {"marimo.ui": "write its value", "marimo": "write a test"}
#: What draws on the page and does nothing else.
_SHOWN = frozenset(
    "Html accordion as_html audio callout carousel center hstack iframe image json lazy left md mermaid nav_menu pdf"
    " plain_text right routes sidebar stat tabs tree video vstack".split()
)


@rule("DDP320")
def marimo_page(program: Program) -> Iterator[Finding]:
    tree, done = program.tree, set[cst.CSTNode]()
    for call in tree.of(cst.Call):
        room, _, name = tree.qualified(call.func).rpartition(".")
        statement = program.alone(call)
        if room not in ("marimo", "marimo.ui") or not done.isdisjoint(tree.ancestors(call)):
            continue
        if room == "marimo.ui" or name == "stop":
            said = "waits for a person, and a script has none"
            yield Finding(call, f"marimo's {name}(...) {said}: {_WAITS[room]}", todo=True)
        elif statement is not None and name in _SHOWN:
            message = f"marimo's {name}(...) shows something on its page; the script leaves it out"
            yield Finding(call, message, (Remove(statement),))
            done.add(call)
    yield from _imports(program, done)


def _imports(program: Program, done: set[cst.CSTNode]) -> Iterator[Finding]:
    """Drop the import of marimo where nothing that stays needs it."""
    tree = program.tree
    for imported, _, kept in tree.imports("marimo"):
        uses = [use for name in tree.binds(imported) for use in tree.loads(name)]
        if not kept and not any(done.isdisjoint(tree.ancestors(use)) for use in uses):
            message = "marimo is what the page needs; the script leaves the import out"
            yield Finding(imported, message, (Remove(imported),))
