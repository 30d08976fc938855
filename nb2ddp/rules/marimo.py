"""DDP320: marimo's widgets take their first value, and what marimo shows goes."""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from nb2ddp.facts.program import Program
from nb2ddp.rules.rule import Example, Finding, Rule
from nb2ddp.syntax.edits import Cut, Edit, Remove, Replace, Wrap
from nb2ddp.syntax.tree import argument, keyword

#: What a widget's value is where it is given none; None where that is for the page to say.
_VALUES = {
    **dict.fromkeys(("text", "text_area", "code_editor"), '""'),
    **dict.fromkeys(("checkbox", "switch"), "False"),
    **dict.fromkeys(("dropdown", "number", "radio"), "None"),
    "multiselect": "[]",
    "run_button": "True",  # who starts a script has pressed it
    "slider": None,
}
#: What draws on the page and does nothing else.
_SHOWN = frozenset(
    "Html accordion as_html audio callout carousel center hstack iframe image json lazy left md mermaid nav_menu pdf"
    " plain_text right routes sidebar stat tabs tree video vstack".split()
)


def find(program: Program) -> Iterator[Finding]:
    tree, done = program.tree, set[cst.CSTNode]()
    for call in tree.of(cst.Call):
        room, _, name = tree.qualified(call.func).rpartition(".")
        statement = program.alone(call)
        if room not in ("marimo", "marimo.ui") or not done.isdisjoint(tree.ancestors(call)):
            continue
        if room == "marimo.ui":
            value = _value(program, call)
            if value is None or (statement is None and not isinstance(tree.parents[call], cst.Assign)):
                message = f"marimo's {name}(...) waits for a person, and a script has none: write its value"
                yield Finding(call, message, todo=True)
                continue
            message = f"nobody moves a widget in a script; its value there is {value}"
            yield Finding(call, message, _edits(program, call, value))
        elif statement is not None and name in _SHOWN:
            message = f"marimo's {name}(...) shows something on its page; the script leaves it out"
            yield Finding(call, message, (Remove(statement),))
        elif statement is not None and name == "stop" and call.args:
            yield _stop(program, call, statement)
        else:
            continue
        done.add(call)
    yield from _imports(program, done)


def _stop(program: Program, call: cst.Call, statement: cst.Expr) -> Finding:
    """End the script where marimo stops a cell and those that need it."""
    tree, test = program.tree, call.args[0].value
    (start, end), (first, last) = tree.span(statement), tree.span(test)
    edits = (Cut(start, first), Wrap(test, "if ", ":\n    raise SystemExit"), Cut(last, end))
    return Finding(call, "mo.stop(...) ends cells of a page; in the script it ends the script", edits)


def _value(program: Program, call: cst.Call) -> str | None:
    """The text of a widget's first value; None for what is no widget, and where only the page knows it."""
    room, _, name = program.tree.qualified(call.func).rpartition(".")
    if room != "marimo.ui" or name not in _VALUES:
        return None
    given = keyword(call, "value") or (argument(call, "start", 0) if name in ("number", "slider") else None)
    if given is None:
        return _VALUES[name]
    options, value = argument(call, "options", 0), program.tree.text(given.value)
    if name in ("dropdown", "radio") and options is not None and isinstance(options.value, cst.Dict):
        return f"{program.tree.text(options.value)}[{value}]"
    return value


def _edits(program: Program, call: cst.Call, value: str) -> tuple[Edit, ...]:
    """Put the value in the widget's place, and in that of every `widget.value`."""
    tree, owner = program.tree, program.tree.parents[call]
    uses = tree.bound_uses(owner) if isinstance(owner, cst.Assign) else []
    values = [above for use in uses if isinstance(above := tree.parents[use], cst.Attribute)]
    return (Replace(call, value), *(Replace(v, tree.text(v.value)) for v in values if v.attr.value == "value"))


def _imports(program: Program, done: set[cst.CSTNode]) -> Iterator[Finding]:
    """Drop the import of marimo where nothing that stays needs it."""
    tree = program.tree
    for imported, _, kept in tree.imports("marimo"):
        uses = [use for name in tree.binds(imported) for use in tree.loads(name)]
        if not kept and not any(done.isdisjoint(tree.ancestors(use)) for use in uses):
            message = "marimo is what the page needs; the script leaves the import out"
            yield Finding(imported, message, (Remove(imported),))


RULE = Rule(
    code="DDP320",
    name="marimo-page",
    summary="marimo's widgets take their first value, `mo.stop(...)` ends the script, and page output is removed.",
    why=(
        "A script has no page: nobody moves a slider or presses a button, and every process must see the same value. "
        "marimo itself uses a widget's initial value if a notebook runs as a script "
        "(https://docs.marimo.io/guides/scripts/). A run button counts as pressed."
    ),
    find=find,
    examples=(
        Example(
            """\
import marimo as mo
# %%
rank = mo.ui.slider(4, 64, value=16)
run = mo.ui.run_button()
mo.vstack([rank, run])
# %%
mo.stop(not run.value, mo.md("press the button"))
model = get_peft_model(model, r=rank.value)
mo.md(f"rank **{rank.value}**")
""",
            """\
# %%
rank = 16
run = True
# %%
if not run:
    raise SystemExit
model = get_peft_model(model, r=rank)
""",
        ),
        Example('import marimo as mo\nwith mo.status.spinner(title="loading"):\n    model = load()\n'),
        Example(
            "import marimo as mo\nrows = mo.ui.table(frame)\n",
            "import marimo as mo\n"
            "# TODO[nb2ddp] DDP320: marimo's table(...) waits for a person, and a script has none: write its value\n"
            "rows = mo.ui.table(frame)\n",
        ),
    ),
)
