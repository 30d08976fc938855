"""DDP312: `plt.show()` becomes `plt.savefig("figure_1.png")`; images and sounds are saved to files too."""

from __future__ import annotations

import builtins
import re
import sys
from collections.abc import Iterator
from itertools import groupby

import libcst as cst

from nb2ddp.facts.drawn import Drawing
from nb2ddp.facts.looking import only_looks
from nb2ddp.facts.program import Program
from nb2ddp.rules.rule import Finding, rule
from nb2ddp.syntax.edits import InsertAfter, Remove, Replace
from nb2ddp.syntax.tree import Statement, Tree, method, small_statements

_PYPLOT = re.compile(r"matplotlib\.pyplot\.\w+")
_DRAWS = frozenset("bar barh boxplot contour errorbar fill_between hist imshow pie plot scatter semilogy step".split())
_SEABORN = re.compile(r"seaborn\.(\w*plot|heatmap|clustermap)")
#: What `table.plot.bar()` and the like draw.
_KINDS = _DRAWS | {"area", "box", "density", "hexbin", "kde", "line"}
#: Packages that draw on no figure.
_DRAW_NOTHING = sys.stdlib_module_names | {"IPython", "google"}
_KEPT = "a script has no notebook to draw in; it saves this to a file"


@rule("DDP312")
def figure_shown(program: Program) -> Iterator[Finding]:
    tree = program.tree
    for statement, drawing in program.drawings.items():
        line = tree.statement(statement)
        alone = len(small_statements(line)) == 1
        code, edits = drawing.code(program.execution)
        pyplot = tree.text(drawing.value) if drawing.library == "pyplot" else ""
        if not code:
            said = "a script has no notebook to draw in; it leaves this out"
            yield Finding(statement, said, (Remove(statement, comments_above=True),))
        elif not alone:
            code = f"{code}; {pyplot}.close()" if pyplot else code
            yield Finding(statement, _KEPT, (Replace(statement, code), *edits))
        elif pyplot and _is_saved(program, line, pyplot):
            said = "a script has no notebook to draw in; it closes the figure, which the notebook saves"
            yield Finding(statement, said, (Replace(statement, f"{pyplot}.close()"),))
        else:
            guard = program.placement.on_main_process(statement)
            is_call = isinstance(drawing.value, cst.Call) and not only_looks(program.effects, drawing.value)
            if is_call and program.execution.runs(statement):
                code, guard = _made_by_all(program, drawing, code), ()
            code = re.sub(r"\n(?!\n)", "\n" + tree.indentation(line), code)
            close = (InsertAfter(line, f"{pyplot}.close()"),) if pyplot else ()
            yield Finding(statement, _KEPT, (Replace(statement, code), *guard, *edits, *close))
    yield from _left_open(program)


def _made_by_all(program: Program, drawing: Drawing, code: str) -> str:
    """Let every process make what is drawn, as it may draw random numbers, and the main process keep it in a file."""
    made, text = f"{drawing.library}_{drawing.number}", program.tree.text(drawing.value)
    first, opened, writing = code.partition("\nwith ")
    if not opened:
        first, writing = f"{made} = {text}", code.replace(text, made, 1)
    writing = opened.lstrip() + writing
    inner = writing.replace("\n", "\n    ")
    return f"{first}\nif is_main_process:\n    {inner}"


def _left_open(program: Program) -> Iterator[Finding]:
    """Figures that a cell leaves to Jupyter, which shows them at the cell's end."""
    tree = program.tree
    kept = [each for each in program.drawings.values() if each.library in ("pyplot", "figure")]
    number, keeping = len(kept), {program.cell_at(tree.start(each.statement)).number for each in kept}
    outside = [call for call in program.execution.calls() if tree.function(call) is None]
    names = [tree.text(call.func).rpartition(".")[0] for call in tree.of(cst.Call) if _is_of_pyplot(tree, call)]
    for cell, in_cell in groupby(outside, lambda call: program.cell_at(tree.start(call)).number):
        calls = list(in_cell)
        draws, keeps = (any(does(tree, call) for call in calls) for does in (_draws, _keeps))
        if not draws or keeps or cell in keeping:
            continue
        number += 1
        pyplot = names[0] if names else "plt"
        said = "the notebook shows this figure at the cell's end; the script saves it to a file"
        last = _last_of_figure(program, cell, calls)
        alone = "if is_main_process:\n    " if program.execution.runs(last) else ""
        keep = f'{alone}{pyplot}.savefig("figure_{number}.png")\n{pyplot}.close()'
        yield Finding(last, said, (InsertAfter(last, keep if names else f"import matplotlib.pyplot as plt\n\n{keep}"),))


def _is_of_pyplot(tree: Tree, call: cst.Call) -> bool:
    return isinstance(call.func, cst.Attribute) and bool(_PYPLOT.fullmatch(tree.qualified(call.func)))


def _draws(tree: Tree, call: cst.Call) -> bool:
    """True for a call of pyplot, seaborn, pandas or an axis that draws."""
    name, called = tree.qualified(call.func), method(call)
    if name.startswith(("matplotlib.pyplot.", "seaborn.")):
        return called in _DRAWS or bool(_SEABORN.fullmatch(name))
    of_plot = called in _KINDS and tree.text(call.func).endswith(f".plot.{called}")
    of_no_module = name.startswith((".", "pandas.")) or not name
    return of_no_module and (called in ("plot", "hist", "boxplot") or of_plot)


def _keeps(tree: Tree, call: cst.Call) -> bool:
    """True for a call that shows, saves or closes a figure."""
    return method(call) in ("show", "savefig") or (method(call) == "close" and _is_of_pyplot(tree, call))


def _last_of_figure(program: Program, cell: int, calls: list[cst.Call]) -> Statement:
    """The last statement of a cell that draws, or changes what one that draws has bound: `ax.set_title(...)`."""
    tree, (start, end) = program.tree, program.cell_span(cell)
    drawing = {tree.top_statement(call) for call in calls if _is_of_pyplot(tree, call) or _draws(tree, call)}
    bound = {name for statement in drawing for name in tree.binds(statement)}
    uses = {tree.top_statement(use) for name in bound for use in tree.loads(name) if start <= tree.start(use) < end}
    return max(drawing | uses, key=tree.start)


def _is_saved(program: Program, line: Statement, pyplot: str) -> bool:
    """True where a statement above saves the figure, and nothing in between may draw on it."""
    tree = program.tree
    suite = list(getattr(tree.parents[line], "body", ()))
    for above in reversed(suite[: suite.index(line)] if line in suite else []):
        if tree.text(above).startswith((f"{pyplot}.savefig(", "fig.savefig(")):
            return True
        if any(_may_draw(program, call) for call in tree.within(above, cst.Call)):
            return False
    return False


def _may_draw(program: Program, call: cst.Call) -> bool:
    """False for builtins, Python's modules, hosts and shells: `print`, `shutil.copy`, `open(path).read()`, `!cp`."""
    tree = program.tree
    if isinstance(call.func, cst.Attribute) and isinstance(call.func.value, cst.Call):
        return _may_draw(program, call.func.value)
    package = tree.qualified(call.func).split(".")[0]
    is_builtin = hasattr(builtins, package) and tree.binding(call.func) is None
    return not (is_builtin or package in _DRAW_NOTHING or program.effects.is_shell(call))
