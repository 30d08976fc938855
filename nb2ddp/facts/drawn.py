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

#: IPython's own function, under each of its full names.
DISPLAY = re.compile(r"(IPython\.(core\.)?display(_functions)?\.)?display")
#: What runs more than once.
_REPEATED = (cst.For, cst.While, cst.FunctionDef)
_PYPLOT_SHOW = frozenset({"matplotlib.pyplot.show", "pylab.show"})
_IMAGE_NAME = re.compile(r"(\w*_)?(image|img|picture|photo)(_?\d+)?")
#: By library: how files are named, their suffix, and the method that writes one.
_FILES = {
    "pyplot": ("figure", "png", "savefig"),
    "figure": ("figure", "png", "savefig"),
    "plotly": ("plot", "html", "write_html"),
    "image": ("image", "png", "save"),
}
#: Methods that give the like of what they are called on.
_KEEPING = frozenset("convert copy crop resize rotate update_layout update_traces".split())
_FIGURE_CALL = re.compile(r"matplotlib\.(pyplot\.(figure|subplots|gcf)|figure\.Figure)")
_IMAGE_CALL = re.compile(r"PIL\.Image\.\w+")


@dataclass(frozen=True)
class Drawing:
    """One place where a notebook draws something.

    Attributes:
        statement: what draws it, and does nothing else.
        library: pyplot itself, a figure of matplotlib's or plotly's, or an image.
        value: what is drawn; for pyplot, the name that it goes by.
        number: its number among those of its kind.
    """

    statement: cst.Expr
    library: str
    value: cst.BaseExpression
    number: int

    def code(self, execution: Execution) -> tuple[str, tuple[Edit, ...]]:
        """The statements that keep it in a file, and edits that they rely on."""
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
    """Every live place that draws, by its statement, in order."""
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
    """What a statement draws, and with what; None where it draws nothing that can be kept.

    Args:
        execution: who runs what, when.
        statement: what may draw.
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
    """The library of a value that is drawn: by what made it or, where `named`, by a name that says so."""
    tree = execution.tree
    made = _made_by(tree, value)
    if _FIGURE_CALL.fullmatch(made):
        return "figure", value
    if made.startswith("plotly."):
        return "plotly", value
    said = key_of(tree, value) if isinstance(value, cst.Subscript) else getattr(value, "value", None)
    says = named and isinstance(said, str) and _IMAGE_NAME.fullmatch(said)
    return ("image", value) if says or _IMAGE_CALL.fullmatch(made) else None


def _made_by(tree: Tree, value: cst.BaseExpression) -> str:
    """The full name of the call that made a value; empty where none did, or one of several.

    It is followed through names, also of `figure, axes = plt.subplots()`, what gives the like of it, and functions of
    the notebook.
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
