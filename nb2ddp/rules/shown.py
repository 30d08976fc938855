"""Rules for what a notebook shows: values, displays, figures, progress bars, pages of marimo."""

from __future__ import annotations

import re

import libcst as cst

from nb2ddp.facts.drawn import DISPLAY
from nb2ddp.facts.effects import gives_a_value, only_looks, shown_as
from nb2ddp.facts.flow import receiver
from nb2ddp.facts.program import Program
from nb2ddp.rules.rule import Finding, Findings, left_out, rule, todo
from nb2ddp.syntax.edits import Edit, InsertAfter, Remove, Replace, Wrap
from nb2ddp.syntax.tree import method, small_statements


@rule("DDP307")
def value_only_shown(program: Program) -> Findings:
    """A cell's last expression is printed, as Jupyter shows it."""
    for cell in program.code_cells:
        last = program.last_statement(cell)
        if (
            not isinstance(last, cst.Expr)
            or isinstance(last.value, (cst.SimpleString, cst.ConcatenatedString, cst.Ellipsis))
            or program.names.is_stop(last)
            or program.installs.covers(last)
            or last in program.drawings
        ):
            continue
        gives = gives_a_value(program.effects, last.value)
        if gives or (gives is None and cell.shows is not False):
            shows = "print" if gives or cell.shows else "sys.displayhook"  # it does not show None
            message = "the notebook shows the cell's last expression; the script prints it"
            before, after = ("", "") if last.value.lpar else ("(", ")")
            yield Finding(last, message, Wrap(last, f"{shows}{before}", after))


_DISPLAY = re.compile(rf"{DISPLAY.pattern}(_[a-z]+)?|IPython\.(core\.)?display(_functions)?\.clear_output")
#: IPython's classes for a text to read, or for a path to click on.
_TEXTS = frozenset("Code FileLink FileLinks HTML JSON Latex Markdown Math Pretty TextDisplayObject".split())
#: Methods that convert a tensor for display.
_OF_TENSORS = frozenset("cpu detach float numpy squeeze to".split())
_IMPORTED = "works in a notebook only; the script leaves the import out"
_NONE = "works in a notebook only, so it is None in the script: write what it does in Python"
_DRAWS = "ipywidgets draws in a notebook, and shows nothing or fails in a script: write the values, and leave it out"


@rule("DDP308")
def display_call(program: Program) -> Findings:
    """`display(...)` and IPython's display classes are removed; their text is printed."""
    tree, done = program.tree, set[cst.CSTNode]()
    for call in tree.of(cst.Call):
        name, owner = shown_as(tree, call), tree.parents[call]
        is_shown = _DISPLAY.fullmatch(name) or (_is_ipython(name) and isinstance(owner, cst.Expr))
        if not is_shown or not done.isdisjoint(tree.ancestors(call)):
            continue
        done.add(call)
        if owner not in program.drawings:
            edit = _without(program, call)
            does = "prints it" if isinstance(edit, Replace) and edit.text.startswith("print(") else "leaves it out"
            message = f"{name.rsplit('.', 1)[-1]}(...) shows something in a notebook; the script {does}"
            yield Finding(call, message, edit, todo=isinstance(owner, cst.Assign))
    for use in [use for name in tree.names_read for use in tree.loads(name) if _is_ipython(tree.qualified(use))]:
        target = tree.around(use, cst.AssignTarget)
        if not done.isdisjoint(tree.ancestors(use)):
            continue
        if target is not None:
            message = f"{tree.text(target.target)} configures a notebook; the script leaves it out"
            assign = cst.ensure_type(tree.parents[target], cst.Assign)
            yield Finding(use, message, Remove(assign, comments_above=True))
        else:
            chain = tree.extended(use, cst.Attribute, cst.Call)
            yield todo(use, f"{tree.text(use)} {_NONE}", Replace(chain, "None"))
    for statement, module, kept in tree.imports("IPython"):
        if not kept and tree.around(statement, cst.Try) is not None:
            kept = 'raise ImportError("not a notebook")'
        edit = Replace(statement, kept) if kept else Remove(statement, comments_above=True)
        yield Finding(statement, f"{module} {_IMPORTED}", edit)
    for statement, *_ in tree.imports("ipywidgets"):
        yield todo(statement, _DRAWS)


def _without(program: Program, call: cst.Call) -> Edit:
    """Print what is shown; if nothing can be printed, keep the arguments that have an effect."""
    tree = program.tree
    if program.alone(call) is not None and (texts := _printed(program, call)):
        return Replace(call, f"print({', '.join(texts)})")
    working = [part for a in call.args for part in _working(program, a.value)]
    texts = [f"({tree.text(part)})" if isinstance(part, cst.NamedExpr) else tree.text(part) for part in working]
    return Replace(call, ", ".join(texts)) if texts else left_out(program, call)


def _printed(program: Program, value: cst.BaseExpression) -> list[str]:
    """Return code for what can be printed: a value itself, the arguments of a display, the text in IPython's objects.

    Nothing can be printed of `clear_output()`, or of an object that shows a file.
    """
    tree = program.tree
    name = shown_as(tree, value)
    shown = [each.value for each in value.args if each.keyword is None] if isinstance(value, cst.Call) else []
    if _DISPLAY.fullmatch(name):
        shown = [] if name.endswith("clear_output") else shown
        return [text for each in shown for text in _printed(program, each)]
    if not _is_ipython(name):
        return [tree.text(value)]
    return [tree.text(each) for each in shown[:1] if name.rsplit(".", 1)[-1] in _TEXTS]


def _working(program: Program, node: cst.BaseExpression) -> list[cst.BaseExpression]:
    """Return the parts of a display's argument that have an effect."""
    while method(node) in _OF_TENSORS:
        node = receiver(node) or node
    if isinstance(node, cst.Name) or only_looks(program.effects, node):
        return []
    if isinstance(node, cst.Call) and _is_ipython(shown_as(program.tree, node)):
        return [part for a in node.args for part in _working(program, a.value)]
    return [node]


def _is_ipython(name: str) -> bool:
    return name.split(".")[0] == "IPython" and not name.endswith("get_ipython")


_SAVED = "a script cannot show figures; it saves this to a file"
_CLOSES = "a script cannot show figures; it closes the figure, which the line above saves"


@rule("DDP312")
def figure_shown(program: Program) -> Findings:
    """`plt.show()` becomes `plt.savefig("figure_1.png")`; images are saved to files too."""
    tree = program.tree
    for statement, drawing in program.drawings.items():
        line = tree.statement(statement)
        alone = len(small_statements(line)) == 1
        code, edits = drawing.code(program.execution)
        pyplot = tree.text(drawing.value) if drawing.library == "pyplot" else ""
        suite = list(getattr(tree.parents[line], "body", ()))
        above = suite[suite.index(line) - 1] if line in suite[1:] else line
        if pyplot and ".savefig(" in tree.text(above):
            yield Finding(statement, _CLOSES, Replace(statement, f"{pyplot}.close()"))
            continue
        if alone:
            edits = (*program.placement.on_main_process(statement), *edits)
            code = re.sub(r"\n(?!\n)", "\n" + tree.indentation(line), code)
            edits += (InsertAfter(line, f"{pyplot}.close()"),) if pyplot else ()
        yield Finding(statement, _SAVED, Replace(statement, code), *edits)


_MESSAGE = "tqdm.notebook works in a notebook only; the script uses tqdm's terminal bar"


@rule("DDP313")
def notebook_progress_bar(program: Program) -> Findings:
    """`tqdm.notebook` becomes `tqdm`."""
    tree = program.tree
    for attribute in tree.of(cst.Attribute):
        if tree.text(attribute) == "tqdm.notebook":
            yield Finding(attribute, _MESSAGE, Replace(attribute, "tqdm"))


_WAITS = "waits for user input, which a script does not get: write its value"


@rule("DDP320")
def marimo_page(program: Program) -> Findings:
    """marimo's page output is removed; a widget and `mo.stop(...)` get a `TODO`."""
    tree, done = program.tree, set[cst.CSTNode]()
    for call in tree.of(cst.Call):
        name = tree.qualified(call.func)
        if not name.startswith("marimo.") or not done.isdisjoint(tree.ancestors(call)):
            continue
        if name.startswith("marimo.ui.") or name == "marimo.stop":
            yield todo(call, f"{name}(...) {_WAITS}")
        elif (statement := program.alone(call)) is not None:
            yield Finding(call, f"{name}(...) shows something on a page; the script leaves it out", Remove(statement))
            done.add(call)
    for imported, _, kept in tree.imports("marimo"):
        uses = [use for name in tree.binds(imported) for use in tree.loads(name)]
        if not kept and not any(done.isdisjoint(tree.ancestors(use)) for use in uses):
            message = "only the page needs marimo; the script leaves the import out"
            yield Finding(imported, message, Remove(imported))
