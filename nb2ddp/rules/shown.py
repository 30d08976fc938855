"""What a notebook shows: values, displays, figures, progress bars, pages of marimo."""

from __future__ import annotations

import builtins
import re
import sys
from collections.abc import Iterator

import libcst as cst

from nb2ddp.facts.drawn import DISPLAY, Drawing
from nb2ddp.facts.looking import gives_a_value, only_looks, shown_as
from nb2ddp.facts.program import Program
from nb2ddp.rules.rule import Finding, left_out, rule
from nb2ddp.syntax.edits import Edit, InsertAfter, InsertBefore, Remove, Replace, Wrap
from nb2ddp.syntax.tree import Statement, keyword, method, small_statements


@rule("DDP307")
def value_only_shown(program: Program) -> Iterator[Finding]:
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
            shows = "print" if gives or cell.shows else "sys.displayhook"  # which shows no None
            said = "the notebook shows the cell's last expression; the script prints it"
            before, after = ("", "") if last.value.lpar else ("(", ")")
            yield Finding(last, said, (Wrap(last, f"{shows}{before}", after),))


_DISPLAY = re.compile(rf"{DISPLAY.pattern}(_[a-z]+)?|IPython\.(core\.)?display(_functions)?\.clear_output")
#: IPython's classes of a text to read, or of a path to click on.
_TEXTS = frozenset(
    {"Code", "FileLink", "FileLinks", "HTML", "JSON", "Latex", "Markdown", "Math", "Pretty", "TextDisplayObject"}
)
#: Methods that bring a tensor into the form in which it is shown.
_OF_TENSORS = frozenset({"cpu", "detach", "float", "numpy", "squeeze", "to"})
_IMPORTED = "works in a notebook only; the script leaves the import out"
_NONE = "works in a notebook only, so it is None in the script: write what it does in Python"
_COPIED = "plays or shows a temporary file in a notebook; the script keeps a copy of the file"
_DRAWS = "ipywidgets draws in a notebook, and shows nothing or fails in a script: write the values, and leave it out"


@rule("DDP308")
def display_call(program: Program) -> Iterator[Finding]:
    """`display(...)` and IPython's display classes are removed; their text is printed."""
    yield from _calls(program)
    yield from _display_imports(program)
    yield from _uses(program)


def _calls(program: Program) -> Iterator[Finding]:
    """What is shown, and objects that are made to be shown."""
    tree, done = program.tree, set[cst.CSTNode]()
    for call in tree.of(cst.Call):
        name, owner = shown_as(tree, call), tree.parents[call]
        if not (_is_ipython(name) or _DISPLAY.fullmatch(name)) or not done.isdisjoint(tree.ancestors(call)):
            continue
        if owner in program.drawings:
            done.add(call)  # DDP312
        elif isinstance(owner, cst.Expr) or _DISPLAY.fullmatch(name):
            done.add(call)
            edit = _without(program, call)
            does = "prints it" if isinstance(edit, Replace) and edit.text.startswith("print(") else "leaves it out"
            message = f"{name.rsplit('.', 1)[-1]}(...) shows something in a notebook; the script {does}"
            yield Finding(call, message, (edit,), todo=isinstance(owner, cst.Assign))
        elif edits := _kept(program, call, name):
            yield Finding(call, f"{name} {_COPIED}", edits)
        elif not isinstance(owner, cst.Arg):  # an argument of a display call, or reported with its import
            yield Finding(call, f"{name} {_NONE}", (Replace(call, "None"),), todo=True)


def _kept(program: Program, call: cst.Call, name: str) -> tuple[Edit, ...]:
    """Copy the temporary file that an object of IPython's shows after training; the copy's path is the value."""
    tree, function = program.tree, program.tree.function(call)
    file = call.args[0].value if call.args else None
    if function is None or not isinstance(file, cst.Attribute) or program.execution.runs(call):
        return ()
    owner = tree.definition(file.value)
    maker = owner.item if isinstance(owner, cst.WithItem) else getattr(owner, "value", None)
    given = keyword(maker, "suffix") if isinstance(maker, cst.Call) else None
    suffix = tree.literal(given.value) if given is not None else None
    is_temporary = tree.maker(file.value).startswith("tempfile.") and file.attr.value == "name"
    if not is_temporary or not isinstance(suffix, str):
        return ()
    stem, counter = function.name.value, program.name(f"{function.name.value}_files")
    kept = f"{stem}_{name.rsplit('.', 1)[-1].lower()}_{{next({counter})}}{suffix}"
    copy = f'shutil.copy({tree.text(file)}, f"{kept}")'
    above = f"import itertools\nimport shutil\n\n{counter} = itertools.count(1)\n"
    return Replace(call, copy), InsertBefore(tree.top_statement(call), above)


def _uses(program: Program) -> Iterator[Finding]:
    """Names of IPython that stand for a value."""
    tree = program.tree
    uses = [use for name in tree.names_read for use in tree.loads(name) if _is_ipython(tree.qualified(use))]
    for use in uses:
        owner = tree.parents[use]
        chain = owner if isinstance(owner, cst.Attribute) else use
        if tree.call_of(chain) is not None:
            continue
        target = tree.around(use, cst.AssignTarget)
        if target is not None:
            assign = cst.ensure_type(tree.parents[target], cst.Assign)
            message = f"{tree.text(target.target)} steers a notebook; the script leaves it out"
            yield Finding(use, message, (Remove(assign, comments_above=True),))
        else:
            yield Finding(use, f"{tree.text(chain)} {_NONE}", (Replace(chain, "None"),), todo=True)


def _without(program: Program, call: cst.Call) -> Edit:
    """Print what is shown; where nothing can be printed, keep the arguments that have an effect."""
    tree = program.tree
    if program.alone(call) is not None and (texts := _printed(program, call)):
        return Replace(call, f"print({', '.join(texts)})")
    working = [part for a in call.args for part in _working(program, a.value)]
    texts = [f"({tree.text(part)})" if isinstance(part, cst.NamedExpr) else tree.text(part) for part in working]
    return Replace(call, ", ".join(texts)) if texts else left_out(program, call)


def _printed(program: Program, value: cst.BaseExpression) -> list[str]:
    """What can be printed of a value: its text; of a display what it is given; of IPython's objects the text in them.

    That is nothing of `clear_output()`, or of a file that is there.
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
    """The parts of a display's argument that have an effect."""
    while method(node) in _OF_TENSORS:
        node = cst.ensure_type(cst.ensure_type(node, cst.Call).func, cst.Attribute).value
    if isinstance(node, cst.Name) or only_looks(program.effects, node):
        return []
    if isinstance(node, cst.Call) and _is_ipython(shown_as(program.tree, node)):
        return [part for a in node.args for part in _working(program, a.value)]
    return [node]


def _is_ipython(name: str) -> bool:
    return name.split(".")[0] == "IPython" and not name.endswith("get_ipython")  # DDP315


def _display_imports(program: Program) -> Iterator[Finding]:
    """Drop imports of IPython, whole or name by name."""
    tree = program.tree
    for statement, module, kept in tree.imports("IPython"):
        if not kept and tree.around(statement, cst.Try) is not None:
            kept = 'raise ImportError("not a notebook")'
        edit = Replace(statement, kept) if kept else Remove(statement, comments_above=True)
        yield Finding(statement, f"{module} {_IMPORTED}", (edit,))
    for statement, *_ in tree.imports("ipywidgets"):
        yield Finding(statement, _DRAWS, todo=True)


#: Packages that draw on no figure.
_DRAW_NOTHING = sys.stdlib_module_names | {"IPython", "google"}
_SAVED = "a script has no notebook to draw in; it saves this to a file"


@rule("DDP312")
def figure_shown(program: Program) -> Iterator[Finding]:
    """`plt.show()` becomes `plt.savefig("figure_1.png")`; images are saved to files too."""
    tree = program.tree
    for statement, drawing in program.drawings.items():
        line = tree.statement(statement)
        alone = len(small_statements(line)) == 1
        code, edits = drawing.code(program.execution)
        pyplot = tree.text(drawing.value) if drawing.library == "pyplot" else ""
        if not alone:
            code = f"{code}; {pyplot}.close()" if pyplot else code
            yield Finding(statement, _SAVED, (Replace(statement, code), *edits))
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
            yield Finding(statement, _SAVED, (Replace(statement, code), *guard, *edits, *close))


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


_MESSAGE = "tqdm.notebook draws in a notebook; the script takes the tqdm of terminals"


@rule("DDP313")
def notebook_progress_bar(program: Program) -> Iterator[Finding]:
    """`tqdm.notebook` becomes `tqdm`."""
    tree = program.tree
    for attribute in tree.of(cst.Attribute):
        if tree.text(attribute) == "tqdm.notebook":
            owner = tree.parents[attribute]
            place = owner if isinstance(owner, (cst.ImportAlias, cst.ImportFrom)) else attribute
            yield Finding(place, _MESSAGE, (Replace(attribute, "tqdm"),))
    for statement in tree.of(cst.ImportFrom):
        is_tqdm = statement.module is not None and tree.text(statement.module) == "tqdm"
        names = () if isinstance(statement.names, cst.ImportStar) or not is_tqdm else statement.names
        for alias in names:
            name = alias.evaluated_alias or alias.evaluated_name
            if alias.evaluated_name == "tqdm_notebook":
                yield Finding(alias, _MESSAGE, (Replace(alias, f"tqdm as {name}"),))
            elif alias.evaluated_name == "notebook" and len(names) == 1:
                yield Finding(alias, _MESSAGE, (Replace(statement, f"import tqdm as {name}"),))


#: What waits for a person, and what to write instead.
_WAITS = {"marimo.ui": "write its value", "marimo": "write a test"}
#: What draws on the page and does nothing else.
_SHOWN = frozenset(
    "Html accordion as_html audio callout carousel center hstack iframe image json lazy left md mermaid nav_menu pdf"
    " plain_text right routes sidebar stat tabs tree video vstack".split()
)


@rule("DDP320")
def marimo_page(program: Program) -> Iterator[Finding]:
    """marimo's page output is removed; a widget and `mo.stop(...)` get a `TODO`."""
    tree, done = program.tree, set[cst.CSTNode]()
    for call in tree.of(cst.Call):
        room, _, name = tree.qualified(call.func).rpartition(".")
        statement = program.alone(call)
        if room not in ("marimo", "marimo.ui") or not done.isdisjoint(tree.ancestors(call)):
            continue
        if room == "marimo.ui" or name == "stop":
            said = "waits for a person, and a script has none"
            yield Finding(call, f"marimo's {name}(...) {said}: {_WAITS[room]}", todo=True)
        elif statement is not None and name in _SHOWN:
            message = f"marimo's {name}(...) shows something on its page; the script leaves it out"
            yield Finding(call, message, (Remove(statement),))
            done.add(call)
    yield from _marimo_imports(program, done)


def _marimo_imports(program: Program, done: set[cst.CSTNode]) -> Iterator[Finding]:
    """Drop the import of marimo where nothing that stays needs it."""
    tree = program.tree
    for imported, _, kept in tree.imports("marimo"):
        uses = [use for name in tree.binds(imported) for use in tree.loads(name)]
        if not kept and not any(done.isdisjoint(tree.ancestors(use)) for use in uses):
            message = "marimo is what the page needs; the script leaves the import out"
            yield Finding(imported, message, (Remove(imported),))
