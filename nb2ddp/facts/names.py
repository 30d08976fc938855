"""Names that stand for nothing, and lines that stop a notebook on purpose."""

from __future__ import annotations

import builtins
from functools import lru_cache

import libcst as cst

from nb2ddp.facts.program import Program
from nb2ddp.notebook.magics import Kind

_KNOWN = frozenset(dir(builtins)) | {
    "__file__", "__name__", "__doc__", "display", "get_ipython", "In", "Out", "exit", "quit", "__ipython__",
}  # fmt: skip


def is_unknown(program: Program, use: cst.Name) -> bool:
    """True for a name in live code that stands for nothing where it is read."""
    tree = program.tree
    if tree.has_star_import or use.value in _KNOWN or use.value in _set_by_magics(program):
        return False
    if not tree.is_live(use) or program.installs.covers(use):
        return False
    return tree.binding(use) is None


@lru_cache(maxsize=1)
def _set_by_magics(program: Program) -> set[str]:
    """Names that magics bind: `%%capture name`, `%time x = f()`."""
    names = {word for _, form in program.forms_of(Kind.CELL_MAGIC) for word in form.text.split()}
    lines = (form.text for _, form in program.forms_of(Kind.LINE_MAGIC) if "=" in form.text)
    return names | {text.split("=")[0].strip() for text in lines}


def is_stop(program: Program, statement: cst.Expr) -> bool:
    """True for a line of a cell that is certain to fail, and does nothing else: `1/0`, a name that nobody defines."""
    value = statement.value
    if not isinstance(program.tree.parents[program.tree.parents[statement]], cst.Module):
        return False
    if isinstance(value, cst.BinaryOperation):
        divides = isinstance(value.operator, (cst.Divide, cst.FloorDivide, cst.Modulo))
        return divides and isinstance(value.left, cst.Integer) and program.tree.text(value.right) == "0"
    return isinstance(value, cst.Name) and is_unknown(program, value) and not program.tree.bindings(value.value)
