"""DDP308: what IPython displays goes."""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from nb2ddp.facts.drawn import DISPLAY
from nb2ddp.facts.effects import Does
from nb2ddp.facts.program import Program
from nb2ddp.rules.rule import Example, Finding, Rule
from nb2ddp.syntax.edits import Edit, Remove, Replace

_DISPLAY = DISPLAY | {
    f"{module}.{name}"
    for module in ("IPython.display", "IPython.core.display", "IPython.core.display_functions")
    for name in ("clear_output", "display_html", "display_markdown", "display_png", "display_pretty")
}
#: IPython's classes of a text to read, or of a path to click on.
_TEXTS = frozenset(
    {"Code", "FileLink", "FileLinks", "HTML", "JSON", "Latex", "Markdown", "Math", "Pretty", "TextDisplayObject"}
)
_STEERS = "steers a notebook; the script leaves it out"
_IMPORTED = "works in a notebook only; the script leaves the import out"
_DRAWS = "draws in a notebook, and shows nothing or fails in a script: write the values, and leave it out"


def find(program: Program) -> Iterator[Finding]:
    yield from _calls(program)
    yield from _imports(program)
    yield from _uses(program)


def _calls(program: Program) -> Iterator[Finding]:
    """What is shown, and objects that are made to be shown."""
    tree = program.tree
    gone: list[tuple[int, int]] = []
    for call in tree.of(cst.Call):
        name = tree.qualified(call.func)
        if not _is_ipython(name) and name not in _DISPLAY:
            continue
        if any(start <= tree.start(call) < end for start, end in gone):
            continue
        statement = program.alone(call)
        if statement in program.drawings:
            gone.append(tree.span(call))
            continue  # DDP312
        if statement is None and name not in _DISPLAY:
            if isinstance(tree.parents[call], cst.Arg):
                continue  # an argument of a display call, or reported with its import
            edit: Edit = Replace(call, "None")
            yield Finding(
                call,
                f"{name} works in a notebook only, so its value is None in the script: write what uses it without it",
                (edit,),
                todo=True,
            )
            continue
        gone.append(tree.span(call))
        edit = _without(program, call, statement)
        does = "prints it" if isinstance(edit, Replace) and edit.text.startswith("print(") else "leaves it out"
        message = f"{name.rsplit('.', 1)[-1]}(...) shows something in a notebook; the script {does}"
        used = statement is None and isinstance(tree.parents[call], cst.Assign)
        yield Finding(call, message, (edit,), todo=used)


def _uses(program: Program) -> Iterator[Finding]:
    """Names of IPython that stand for a value."""
    tree = program.tree
    for name in tree.names_read:
        for use in tree.loads(name):
            owner = tree.parents[use]
            chain = owner if isinstance(owner, cst.Attribute) else use
            called = tree.parents[chain]
            if _is_ipython(tree.qualified(use)) and not (isinstance(called, cst.Call) and called.func is chain):
                if isinstance(owner, cst.Call) and owner.func is use:
                    continue
                assigned = next((a for a in tree.ancestors(use) if isinstance(a, cst.AssignTarget)), None)
                if assigned is not None:
                    owner = tree.parents[assigned]
                    yield Finding(use, f"{tree.text(assigned.target)} {_STEERS}", (Remove(owner),))  # type: ignore[arg-type]
                    continue
                yield Finding(
                    use,
                    f"{tree.text(chain)} works in a notebook only, so it is None in the script: write what it does in"
                    " Python",
                    (Replace(chain, "None"),),
                    todo=True,
                )


def _without(program: Program, call: cst.Call, statement: cst.Expr | None) -> Edit:
    """Print what is shown after training or by a function; else drop it, but for arguments that have an effect."""
    tree = program.tree
    lasting = tree.function(call) is not None or program.execution.is_after_training(call)
    if statement is not None and lasting and (texts := _texts(program, call)):
        return Replace(call, f"print({', '.join(texts)})")
    working = [part for a in call.args for part in _working(program, a.value)]
    if not working:
        return Remove(statement) if statement is not None else Replace(call, "None")
    return Replace(
        call, ", ".join(f"({tree.text(p)})" if isinstance(p, cst.NamedExpr) else tree.text(p) for p in working)
    )


def _texts(program: Program, call: cst.Call) -> list[str]:
    """What a display shows that can be printed; none of `clear_output()`, or of a file that is there."""
    name = program.tree.qualified(call.func)
    shown = [each.value for each in call.args if each.keyword is None]
    if name in _DISPLAY:
        return [] if name.endswith("clear_output") else [text for each in shown for text in _printed(program, each)]
    return _printed(program, call)


def _printed(program: Program, value: cst.BaseExpression) -> list[str]:
    """The text of a value; of an object of IPython's, that of the text that it holds."""
    tree = program.tree
    made = tree.qualified(value.func) if isinstance(value, cst.Call) else ""
    if not isinstance(value, cst.Call) or not _is_ipython(made):
        return [tree.text(value)]
    is_text = made.rsplit(".", 1)[-1] in _TEXTS and value.args and value.args[0].keyword is None
    return [tree.text(value.args[0].value)] if is_text else []


def _is_shown(program: Program, node: cst.BaseExpression) -> bool:
    """True for an expression that works for the display alone: it trains and writes nothing, and calls no function
    of the notebook."""
    tree = program.tree
    for call in tree.within(node, cst.Call):
        own = isinstance(call.func, cst.Name) and tree.qualified(call.func).startswith(".")
        if own or call in program.training.calls or program.execution.does(call) & Does.ACT:
            return False
    return not tree.within(node, cst.NamedExpr) and not tree.within(node, cst.Await)


def _working(program: Program, node: cst.BaseExpression) -> list[cst.BaseExpression]:
    """The parts of a display's argument that have an effect."""
    if _is_shown(program, node):
        return []
    if isinstance(node, cst.Call) and _is_ipython(program.tree.qualified(node.func)):
        return [part for a in node.args for part in _working(program, a.value)]
    return [node]


def _is_ipython(name: str) -> bool:
    return name.split(".")[0] == "IPython" and not name.endswith("get_ipython")  # DDP315


def _imports(program: Program) -> Iterator[Finding]:
    """Drop imports of IPython, whole or name by name."""
    tree = program.tree
    for statement in tree.of(cst.ImportFrom):
        module = tree.text(statement.module) if statement.module is not None else ""
        if module == "IPython" or module.startswith("IPython."):
            edit: Edit = Remove(statement)
            if any(isinstance(above, cst.Try) for above in tree.ancestors(statement)):
                edit = Replace(statement, 'raise ImportError("not a notebook")')
            yield Finding(statement, f"{module} {_IMPORTED}", edits=(edit,))
    for name, widgets in _widgets(program):
        yield Finding(widgets, f"{name} {_DRAWS}", todo=True)
    for imported in tree.of(cst.Import):
        names = [alias for alias in imported.names if alias.evaluated_name.split(".")[0] == "IPython"]
        if len(names) == len(imported.names):
            yield Finding(imported, f"IPython {_IMPORTED}", edits=(Remove(imported),))
        elif names:
            kept = ", ".join(tree.text(a).rstrip(", ") for a in imported.names if a not in names)
            yield Finding(imported, f"IPython {_IMPORTED}", edits=(Replace(imported, f"import {kept}"),))


def _widgets(program: Program) -> Iterator[tuple[str, cst.CSTNode]]:
    tree = program.tree
    for statement in tree.of(cst.ImportFrom):
        if statement.module is not None and tree.text(statement.module).split(".")[0] == "ipywidgets":
            yield "ipywidgets", statement
    for imported in tree.of(cst.Import):
        if any(alias.evaluated_name.split(".")[0] == "ipywidgets" for alias in imported.names):
            yield "ipywidgets", imported


RULE = Rule(
    code="DDP308",
    name="display-call",
    summary="`display(...)`, the classes of IPython.display and their imports go; after the last training, and in"
    " functions, what they show is printed.",
    why="They draw in a notebook; in a script they print an object's name, or fail. Names are resolved: `Audio` of "
    "datasets stays.",
    find=find,
    examples=(
        Example(
            """\
from datasets import Audio
from IPython.display import display, Math
dataset = dataset.cast_column("audio", Audio(sampling_rate = 16000))
for text in texts:
    display(Math(text))
print("done")
""",
            """\
from datasets import Audio
dataset = dataset.cast_column("audio", Audio(sampling_rate = 16000))
for text in texts:
    pass
print("done")
""",
        ),
        Example(
            """\
from IPython.display import HTML, FileLink, Markdown, clear_output, display
def show(row):
    clear_output()
    display(Markdown(row["text"]))
show(rows[0])
trainer.train()
display(scores, HTML(scores.to_html()))
display(FileLink("adapter.zip"))
""",
            """\
def show(row):
    print(row["text"])
show(rows[0])
trainer.train()
print(scores, scores.to_html())
print("adapter.zip")
""",
        ),
        Example("def display(x):\n    return x\ny = display(1)\n"),
    ),
)
