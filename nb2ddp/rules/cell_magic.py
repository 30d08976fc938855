"""DDP302: `%%capture`, `%%time`, `%%timeit` and the like are removed; the code below them stays."""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from nb2ddp.facts.program import Program
from nb2ddp.facts.shell import trailing_comment
from nb2ddp.notebook.magics import PYTHON_CELL_MAGICS, Kind, Syntax
from nb2ddp.results import Severity
from nb2ddp.rules.rule import Finding, rule
from nb2ddp.syntax.edits import Remove, Replace
from nb2ddp.syntax.tree import Tree


@rule("DDP302")
def cell_magic_around_code(program: Program) -> Iterator[Finding]:
    for call, form in program.forms_of(Kind.CELL_MAGIC):
        statement = program.alone(call)
        if form.body is None and form.name in PYTHON_CELL_MAGICS and statement is not None:
            said = f"%%{form.name} works in a notebook only; the script keeps the code below it"
            yield Finding(call, said, (Remove(statement, comment=trailing_comment(form.text)),))
            yield from _captured(program, form)


def _captured(program: Program, form: Syntax) -> Iterator[Finding]:
    """Uses of the name that `%%capture name` binds: a script captures nothing."""
    tree = program.tree
    names = [word for word in form.text.split("#")[0].split() if word.isidentifier()]
    if form.name != "capture" or not names:
        return
    said = f"{names[0]} holds what %%capture caught; a script prints that at once, so there is nothing to show here"
    for use in tree.loads(names[0]):
        part, statement = tree.parents[use], tree.around(use, cst.Expr)
        if statement is not None and _only_shows(tree, statement, names[0]):
            yield Finding(use, said, (Remove(statement, comments_above=True),))
        elif isinstance(part, cst.Attribute):
            yield Finding(use, said, (Replace(part, '""'),), severity=Severity.WARNING)


def _only_shows(tree: Tree, statement: cst.Expr, name: str) -> bool:
    """True for `caught.show()`, `print(caught.stdout)` and the like, which read no other name."""
    names = [(each, tree.parents[each]) for each in tree.within(statement, cst.Name)]
    parts = {getattr(above, kind, None) for _, above in names for kind in ("attr", "keyword")}
    read = {each.value for each, _ in names if each not in parts}
    return read <= {name, "print", "display"}
