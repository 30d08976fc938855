"""Names without a binding, and lines that stop a notebook on purpose."""

from __future__ import annotations

import builtins
import re
from collections.abc import Callable
from functools import cached_property

import libcst as cst

from nb2ddp.notebook.magics import Kind
from nb2ddp.syntax.cells import Source

_KNOWN = frozenset(dir(builtins)) | {
    "__file__", "__name__", "__doc__", "display", "get_ipython", "In", "Out", "exit", "quit", "__ipython__",
}  # fmt: skip
#: Words in a name that is meant to stop the notebook.
_STOPS = re.compile(r"(?i)stop|halt|break|exit|end|pause|wait")


class Names:
    """The names of a notebook that nothing binds: neither its code nor magics nor IPython.

    Args:
        source: the notebook's code.
        is_install: returns whether a node belongs to a statement that installs packages.
    """

    def __init__(self, source: Source, is_install: Callable[[cst.CSTNode], bool]) -> None:
        self._source, self._tree = source, source.tree
        self._is_install = is_install

    def is_unknown(self, use: cst.Name) -> bool:
        """Return whether a name in live code has no binding where it is read."""
        if self._tree.star_imports or use.value in _KNOWN or use.value in self._set_by_magics:
            return False
        return self._tree.binding(use) is None and self._tree.is_live(use) and not self._is_install(use)

    @cached_property
    def _set_by_magics(self) -> set[str]:
        """Names that magics bind: `%%capture name`, `%time x = f()`."""
        names = {word for _, form in self._source.forms_of(Kind.CELL_MAGIC) for word in form.text.split()}
        lines = (form.text for _, form in self._source.forms_of(Kind.LINE_MAGIC) if "=" in form.text)
        return names | {text.split("=")[0].strip() for text in lines}

    def is_stop(self, statement: cst.Expr) -> bool:
        """Return whether a line of a cell only fails, and always: `1/0`, a name without a binding."""
        value, tree = statement.value, self._tree
        if not isinstance(tree.parents[tree.parents[statement]], cst.Module):
            return False
        if isinstance(value, cst.BinaryOperation):
            divides = isinstance(value.operator, (cst.Divide, cst.FloorDivide, cst.Modulo))
            return divides and isinstance(value.left, cst.Integer) and tree.text(value.right) == "0"
        if not isinstance(value, cst.Name) or not self.is_unknown(value) or tree.bindings(value.value):
            return False
        alone = len(self._source.lines_of(self._source.cell_at(tree.start(value)).number)) == 1
        is_named = alone or _STOPS.search(value.value) is not None  # else it is a typing error
        return is_named and all(isinstance(tree.parents[use], cst.Expr) for use in tree.loads(value.value))
