"""Figures and images of a notebook, each with the file in which a script saves it."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass

import libcst as cst

from nb2ddp.facts.execution import Execution
from nb2ddp.facts.flow import key_of, reached, receiver, returned
from nb2ddp.notebook.ipynb import Cell
from nb2ddp.syntax.edits import Edit, InsertBefore
from nb2ddp.syntax.tree import Tree, method

#: IPython's function, under each of its full names.
DISPLAY = re.compile(r"(IPython\.(core\.)?display(_functions)?\.)?display")
#: Nodes whose body may run more than once.
_REPEATED = (cst.For, cst.While, cst.FunctionDef)
_PYPLOT_SHOW = frozenset({"matplotlib.pyplot.show", "pylab.show"})
_IMAGE_NAME = re.compile(r"(\w*_)?(image|img|picture|photo)(_?\d+)?")
#: By library: the stem and the suffix of file names, and the method that writes a file.
_FILES = {
    "pyplot": ("figure", "png", "savefig"),
    "figure": ("figure", "png", "savefig"),
    "plotly": ("plot", "html", "write_html"),
    "image": ("image", "png", "save"),
}
#: Methods that return an object of the same kind as their receiver.
_KEEPING = frozenset("convert copy crop resize rotate update_layout update_traces".split())
_FIGURE_CALL = re.compile(r"matplotlib\.(pyplot\.(figure|subplots|gcf)|figure\.Figure)")
_IMAGE_CALL = re.compile(r"PIL\.Image\.\w+")


@dataclass(frozen=True)
class Drawing:
    """One place where a notebook draws something.

    Attributes:
        statement: the statement that draws it and does nothing else.
        library: pyplot, a figure of matplotlib or plotly, or an image.
        value: the drawn object; for pyplot, the name of the module.
        number: its number among the drawings with the same stem.
    """

    statement: cst.Expr
    library: str
    value: cst.BaseExpression
    number: int

    def code(self, execution: Execution) -> tuple[str, tuple[Edit, ...]]:
        """Return the statements that save it in a file, and edits that they rely on."""
        tree = execution.tree
        stem, suffix, saving = _FILES[self.library]
        stem = f"{stem}_{self.number}"
        if not any(isinstance(above, _REPEATED) for above in tree.ancestors(self.statement)):
            return f'{tree.text(self.value)}.{saving}("{stem}.{suffix}")', ()
        counter = execution.source.name(f"{stem}_files")
        above = f"import itertools\n\n{counter} = itertools.count(1)"
        code = f'{tree.text(self.value)}.{saving}(f"{stem}_{{next({counter})}}.{suffix}")'
        return code, (InsertBefore(tree.top_statement(self.statement), above),)


def drawings(execution: Execution) -> dict[cst.Expr, Drawing]:
    """Return all live drawings by statement, in order."""
    found: dict[cst.Expr, Drawing] = {}
    numbers = Counter[str]()
    lasts = {execution.source.last_statement(cell): cell for cell in execution.source.code_cells}
    for statement in execution.tree.live(cst.Expr):
        if (drawn := _drawn(execution, statement, lasts.get(statement))) is not None:
            stem = _FILES[drawn[0]][0]
            numbers[stem] += 1
            found[statement] = Drawing(statement, *drawn, numbers[stem])
    return found


def _drawn(execution: Execution, statement: cst.Expr, cell: Cell | None) -> tuple[str, cst.BaseExpression] | None:
    """Return the library and value that a statement draws; None if it draws nothing that can be saved.

    Args:
        execution: which process runs what, and when.
        statement: the statement that may draw.
        cell: the cell whose last statement it is; None for any other.
    """
    tree, value = execution.tree, statement.value
    if isinstance(value, cst.Call):
        name, owner = tree.qualified(value.func), receiver(value)
        if name in _PYPLOT_SHOW:
            return None if owner is None else ("pyplot", owner)
        if DISPLAY.fullmatch(name) and len(value.args) == 1:
            return _shown(execution, value.args[0].value, named=True)
        if owner is not None and method(value) == "show":
            return _shown(execution, owner, named=False)
    if cell is None:
        return None
    return _shown(execution, value, named=False) or (("image", value) if cell.shows_image else None)


def _shown(execution: Execution, value: cst.BaseExpression, *, named: bool) -> tuple[str, cst.BaseExpression] | None:
    """Return the library and value of a drawing, by the call that made it or, if `named`, by the name of an image."""
    tree = execution.tree
    made = _made_by(tree, value)
    if _FIGURE_CALL.fullmatch(made):
        return "figure", value
    if made.startswith("plotly."):
        return "plotly", value
    key_or_name = key_of(tree, value) if isinstance(value, cst.Subscript) else getattr(value, "value", None)
    says = named and isinstance(key_or_name, str) and _IMAGE_NAME.fullmatch(key_or_name)
    return ("image", value) if says or _IMAGE_CALL.fullmatch(made) else None


def _made_by(tree: Tree, value: cst.BaseExpression) -> str:
    """Return the full name of the call that made a value; empty if there is none or it is one of several.

    The value is followed through names, also those of `figure, axes = plt.subplots()`, through methods that return an
    object of the same kind, and through user-defined functions.
    """

    def sources(value: cst.BaseExpression) -> list[cst.BaseExpression]:
        bound, maker = tree.definition(value), tree.value(value)
        if isinstance(bound, cst.Assign) and isinstance(several := bound.targets[0].target, cst.Tuple):
            return [bound.value] if tree.text(value) == tree.text(several.elements[0].value) else []
        if method(maker) in _KEEPING and (owner := receiver(maker)) is not None:
            return [owner]
        return returned(tree, tree.definition(maker.func)) if isinstance(maker, cst.Call) else []

    names = {tree.constructor(each) for each in reached([value], sources) if not sources(each)}
    return names.pop() if len(names) == 1 else ""
