"""DDP308: `display(...)` and IPython's display classes are removed; their text is printed."""

from __future__ import annotations

import re
from collections.abc import Iterator

import libcst as cst

from nb2ddp.facts.drawn import DISPLAY
from nb2ddp.facts.looking import only_looks
from nb2ddp.facts.program import Program
from nb2ddp.rules.rule import Finding, left_out, rule
from nb2ddp.syntax.edits import Edit, InsertBefore, Remove, Replace
from nb2ddp.syntax.tree import keyword, method

_DISPLAY = re.compile(rf"{DISPLAY.pattern}(_[a-z]+)?|IPython\.(core\.)?display(_functions)?\.clear_output")
#: IPython's classes of a text to read, or of a path to click on.
_TEXTS = frozenset(
    {"Code", "FileLink", "FileLinks", "HTML", "JSON", "Latex", "Markdown", "Math", "Pretty", "TextDisplayObject"}
)
#: Methods that bring a tensor into the form in which it is shown.
_OF_TENSORS = frozenset({"cpu", "detach", "float", "numpy", "squeeze", "to"})
_IMPORTED = "works in a notebook only; the script leaves the import out"
_NONE = "works in a notebook only, so it is None in the script: write what it does in Python"
_KEPT = "plays or shows a temporary file in a notebook; the script keeps a copy of the file"
_DRAWS = "ipywidgets draws in a notebook, and shows nothing or fails in a script: write the values, and leave it out"


@rule("DDP308")
def display_call(program: Program) -> Iterator[Finding]:
    yield from _calls(program)
    yield from _imports(program)
    yield from _uses(program)


def _calls(program: Program) -> Iterator[Finding]:
    """What is shown, and objects that are made to be shown."""
    tree, done = program.tree, set[cst.CSTNode]()
    for call in tree.of(cst.Call):
        name, owner = tree.qualified(call.func), tree.parents[call]
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
            yield Finding(call, f"{name} {_KEPT}", edits)
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
    name = tree.qualified(value.func) if isinstance(value, cst.Call) else ""
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
    if isinstance(node, cst.Call) and _is_ipython(program.tree.qualified(node.func)):
        return [part for a in node.args for part in _working(program, a.value)]
    return [node]


def _is_ipython(name: str) -> bool:
    return name.split(".")[0] == "IPython" and not name.endswith("get_ipython")  # DDP315


def _imports(program: Program) -> Iterator[Finding]:
    """Drop imports of IPython, whole or name by name."""
    tree = program.tree
    for statement, module, kept in tree.imports("IPython"):
        if not kept and tree.around(statement, cst.Try) is not None:
            kept = 'raise ImportError("not a notebook")'
        edit = Replace(statement, kept) if kept else Remove(statement, comments_above=True)
        yield Finding(statement, f"{module} {_IMPORTED}", (edit,))
    for statement, *_ in tree.imports("ipywidgets"):
        yield Finding(statement, _DRAWS, todo=True)
