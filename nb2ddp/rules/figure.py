"""DDP312: `plt.show()` becomes `plt.savefig("figure_1.png")`; images are saved to files too."""

from __future__ import annotations

import builtins
import re
import sys
from collections.abc import Iterator

import libcst as cst

from nb2ddp.facts.drawn import Drawing
from nb2ddp.facts.looking import only_looks
from nb2ddp.facts.program import Program
from nb2ddp.rules.rule import Finding, rule
from nb2ddp.syntax.edits import InsertAfter, Replace
from nb2ddp.syntax.tree import Statement, small_statements

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
        if not alone:
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


def _made_by_all(program: Program, drawing: Drawing, code: str) -> str:
    """Let every process make what is drawn, as it may draw random numbers, and the main process keep it in a file."""
    made, text = f"{drawing.library}_{drawing.number}", program.tree.text(drawing.value)
    return f"{made} = {text}\nif is_main_process:\n    {code.replace(text, made, 1)}"


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
