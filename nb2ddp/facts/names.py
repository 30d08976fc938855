"""Names that stand for nothing, and lines that stop a notebook on purpose."""

from __future__ import annotations

import builtins
from collections.abc import Callable

import libcst as cst

from nb2ddp.syntax.cells import Source

_KNOWN = frozenset(dir(builtins)) | {
    "__file__", "__name__", "__doc__", "display", "get_ipython", "In", "Out", "exit", "quit", "__ipython__",
}  # fmt: skip


class Names:
    """What a notebook's names stand for, beside what its code binds.

    Args:
        source: the notebook's code.
        is_install: true for a node of a statement that installs packages.
    """

    def __init__(self, source: Source, is_install: Callable[[cst.CSTNode], bool]) -> None:
        self._source, self._tree = source, source.tree
        self._is_install = is_install

    def is_unknown(self, use: cst.Name) -> bool:
        """True for a name in live code that stands for nothing where it is read."""
        if self._tree.star_imports or use.value in _KNOWN:
            return False
        return self._tree.binding(use) is None and self._tree.is_live(use) and not self._is_install(use)

    def is_stop(self, statement: cst.Expr) -> bool:
        """True for a line of a cell that is certain to fail, and does nothing else: `1/0`."""
        value, tree = statement.value, self._tree
        if not isinstance(tree.parents[tree.parents[statement]], cst.Module):
            return False
        if not isinstance(value, cst.BinaryOperation) or tree.text(value.right) != "0":
            return False
        divides = isinstance(value.operator, (cst.Divide, cst.FloorDivide, cst.Modulo))
        return divides and isinstance(value.left, cst.Integer)
