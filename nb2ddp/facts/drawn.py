"""Figures, images and sounds of a notebook, each with the file in which a script saves it."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from typing import Final

import libcst as cst

from nb2ddp.facts.effects import Does
from nb2ddp.facts.execution import Execution
from nb2ddp.facts.flow import owner_of, reached, returned
from nb2ddp.notebook.ipynb import Cell
from nb2ddp.syntax.edits import Edit, InsertBefore
from nb2ddp.syntax.tree import Tree, argument, keyword, method, small_statements

#: IPython's own function, under each of its full names.
DISPLAY = re.compile(r"(IPython\.(core\.)?display(_functions)?\.)?display")
#: What runs more than once.
_REPEATED = (cst.For, cst.While, cst.FunctionDef)
_PYPLOT_SHOW = frozenset({"matplotlib.pyplot.show", "pylab.show"})
_SOUND = re.compile(r"IPython\.(core|lib)?\.?display\.Audio")
_IMAGE_NAME = re.compile(r"(\w*_)?(image|img|picture|photo)(_?\d+)?")
#: By library: how files are named, their suffix, and the method that writes one.
_FILES: Final = {
    "pyplot": ("figure", "png", "savefig"),
    "figure": ("figure", "png", "savefig"),
    "plotly": ("plot", "html", "write_html"),
    "image": ("image", "png", "save"),
    "audio": ("audio", "wav", ""),
}
#: Methods that give the like of what they are called on.
_KEEPING = frozenset("convert copy crop resize rotate update_layout update_traces".split())
_FIGURE_CALL = re.compile(r"matplotlib\.(pyplot\.(figure|subplots|gcf)|figure\.Figure)")
_IMAGE_CALL = re.compile(r"PIL\.Image\.\w+")


@dataclass(frozen=True)
class Drawing:
    """One place where a notebook draws or plays something.

    Attributes:
        statement: what draws it, and does nothing else.
        library: pyplot itself, a figure of matplotlib's or plotly's, an image, or a sound.
        value: what is drawn; for pyplot, the name that it goes by.
        number: its number among those of its kind.
    """

    statement: cst.Expr
    library: str
    value: cst.BaseExpression
    number: int

    def code(self, execution: Execution) -> tuple[str, tuple[Edit, ...]]:
        """The statements that keep it in a file (none for a file that is there), and edits that they rely on."""
        tree = execution.tree
        stem, suffix, saving = _FILES[self.library]
        stem, standard, needs, file = f"{stem}_{self.number}", "", list[str](), f'"{stem}_{self.number}.{suffix}"'
        if any(isinstance(above, _REPEATED) for above in tree.ancestors(self.statement)):
            count = _counted(execution, self.statement)
            if not count:
                counter = execution.source.name(f"{stem}_files")
                standard, needs, count = "import itertools\n", [f"{counter} = itertools.count(1)"], f"next({counter})"
            file = f'f"{stem}_{{{count}}}.{suffix}"'
        if self.library == "audio":
            imports, code = _sound(execution, self.value, file)
            standard, needs = standard + "".join(imports[:1]), [*imports[1:], *needs]
        else:
            code = f"{tree.text(self.value)}.{saving}({file})"
        above, top = "\n\n".join(filter(None, [standard.rstrip(), *needs])), tree.top_statement(self.statement)
        if not code or not above:
            return code, ()
        if tree.statement(self.statement) is top:
            return f"{above}\n\n{code}", ()
        return code, (InsertBefore(top, above if above.endswith(")") else f"{above}\n"),)


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
        name = tree.qualified(value.func)
        if name in _PYPLOT_SHOW:
            return ("pyplot", value.func.value) if isinstance(value.func, cst.Attribute) else None
        if DISPLAY.fullmatch(name) and len(value.args) == 1:
            return _shown(execution, value.args[0].value, named=True)
        if isinstance(value.func, cst.Attribute) and method(value) == "show":
            return _shown(execution, value.func.value, named=False)
    if cell is None:
        return None
    return _shown(execution, value, named=False) or (("image", value) if cell.shows_image else None)


def _shown(execution: Execution, value: cst.BaseExpression, *, named: bool) -> tuple[str, cst.BaseExpression] | None:
    """The library of a value that is drawn: by what made it or, where `named`, by a name that says so."""
    tree = execution.tree
    made = _made_by(tree, value)
    if _SOUND.fullmatch(made) or _is_player(value, made):
        return ("audio", value) if isinstance(value, cst.Call) and not _returned(tree, value) else None
    if _FIGURE_CALL.fullmatch(made):
        return "figure", value
    if made.startswith("plotly."):
        return "plotly", value
    key = value.slice[0].slice if isinstance(value, cst.Subscript) and len(value.slice) == 1 else None
    last = tree.literal(key.value) if isinstance(key, cst.Index) else getattr(value, "value", None)
    says = named and isinstance(last, str) and isinstance(value, (cst.Name, cst.Subscript))
    return ("image", value) if _IMAGE_CALL.fullmatch(made) or (says and _IMAGE_NAME.fullmatch(str(last))) else None


def _is_player(value: cst.BaseExpression, made: str) -> bool:
    """True for `Audio(samples, rate = 24000)` of an `Audio` that only IPython's can be, whatever is imported so."""
    return isinstance(value, cst.Call) and made in ("Audio", "datasets.Audio") and keyword(value, "rate") is not None


def _made_by(tree: Tree, value: cst.BaseExpression) -> str:
    """The full name of the call that made a value, through names and functions of the notebook; empty where none did,
    or one of several."""
    values = reached([value], lambda value: _returned(tree, _maker(tree, value)))
    makers = [maker for maker in (_maker(tree, each) for each in values) if not _returned(tree, maker)]
    names = {tree.qualified(maker.func) if isinstance(maker, cst.Call) else "" for maker in makers}
    return names.pop() if len(names) == 1 else ""


def _maker(tree: Tree, value: cst.BaseExpression) -> cst.BaseExpression:
    """What made a value, through names, also of `figure, axes = plt.subplots()`, and what gives the like of it."""
    bound = tree.definition(value)
    if isinstance(bound, cst.Assign) and isinstance(several := bound.targets[0].target, cst.Tuple):
        value = bound.value if tree.text(value) == tree.text(several.elements[0].value) else value

    def like(value: cst.BaseExpression) -> cst.BaseExpression | None:
        maker = tree.value(value)
        return owner_of(maker) if method(maker) in _KEEPING else None

    return tree.value(tree.followed(value, like)[-1])


def _returned(tree: Tree, maker: cst.BaseExpression) -> list[cst.BaseExpression]:
    """What a function of the notebook returns, where it made a value."""
    return returned(tree, tree.definition(maker.func)) if isinstance(maker, cst.Call) else []


def _counted(execution: Execution, statement: cst.Expr) -> str:
    """The name that counts the only loop around a statement; empty where none does."""
    tree = execution.tree
    loop, *more = (above for above in tree.ancestors(statement) if isinstance(above, _REPEATED))
    if more or not isinstance(loop, cst.For) or not isinstance(loop.iter, cst.Call):
        return ""
    name = tree.text(loop.target)
    if tree.qualified(loop.iter.func) == "enumerate" and isinstance(loop.target, cst.Tuple):
        name = tree.text(loop.target.elements[0].value)
    elif tree.qualified(loop.iter.func) != "range":
        return ""
    start, end = tree.span(loop)
    return name if sum(start <= each.offset < end for each in tree.bindings(name, loop)) == 1 else ""


def _sound(execution: Execution, player: cst.BaseExpression, file: str) -> tuple[list[str], str]:
    """Imports, and lines that write what `Audio(samples, rate = 24000)` plays: as the notebook writes it elsewhere,
    else as IPython plays it, scaled to the loudest sample."""
    tree = execution.tree
    call = cst.ensure_type(player, cst.Call)
    samples, rate = argument(call, "data", 0), argument(call, "rate", 4)
    if samples is None or rate is None or isinstance(tree.value(samples.value), cst.SimpleString):
        return [], ""  # it plays a file that is there
    if _is_written(execution, player, tree.text(samples.value)) or len(small_statements(tree.statement(player))) != 1:
        return [], ""
    for written in execution.calls("soundfile.write"):
        if len(written.args) > 1 and tree.text(written.args[1].value) == tree.text(samples.value):
            return [], f"{tree.text(written.func)}({file}, {tree.text(samples.value)}, {tree.text(rate.value)})"
    bound = ((name, tree.bound(name, player)) for name in ("np", "numpy"))
    numpy = next((name for name, found in bound if found is not None and found.imported == "numpy"), "")
    waveform, opened = execution.source.name("waveform"), execution.source.name("file")
    return (
        ["import wave\n", "" if numpy else "import numpy as np"],
        f"{waveform} = {numpy or 'np'}.asarray({tree.text(samples.value)}, dtype=float)\n"
        f'with wave.open({file}, "wb") as {opened}:\n'
        f'    {opened}.setparams((1, 2, {tree.text(rate.value)}, 0, "NONE", ""))\n'
        f'    {opened}.writeframes(({waveform} / abs({waveform}).max() * 32767).astype("<i2").tobytes())',
    )


def _is_written(execution: Execution, place: cst.CSTNode, text: str) -> bool:
    """True where the same cell writes the same to a file of its own, which nothing writes over later."""
    tree = execution.tree
    cell = execution.source.cell_at(tree.start(place)).number
    writing = [call for call in execution.calls(does=Does.WRITE) if call.args]
    last = {tree.text(call.args[0].value): call for call in writing}  # by the file that each writes
    return any(
        text in [tree.text(each.value) for each in call.args]
        for call in last.values()
        if execution.source.cell_at(tree.start(call)).number == cell
    )
