"""DDP320: marimo's widgets take their first value, and what marimo shows goes."""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from nb2ddp.facts.program import Program
from nb2ddp.rules.rule import Example, Finding, Rule
from nb2ddp.syntax.edits import Edit, Remove, Replace
from nb2ddp.syntax.tree import keyword

#: The argument that holds a widget's first value, else the one that does where it is missing, else the value.
_VALUES = {
    "checkbox": ("value", "", "False"),
    "code_editor": ("value", "", '""'),
    "dropdown": ("value", "", "None"),
    "multiselect": ("value", "", "[]"),
    "number": ("value", "start", "None"),
    "radio": ("value", "", "None"),
    "run_button": ("", "", "True"),  # who starts a script has pressed it
    "slider": ("value", "start", ""),
    "switch": ("value", "", "False"),
    "text": ("value", "", '""'),
    "text_area": ("value", "", '""'),
}
#: Where the arguments stand that these take without a name.
_POSITIONS = {("slider", "start"): 0, ("number", "start"): 0}
#: What draws on the page and does nothing else.
_SHOWN = frozenset(
    "Html accordion as_html audio callout carousel center hstack iframe image json lazy left md mermaid nav_menu pdf"
    " plain_text right routes sidebar stat tabs tree video vstack".split()
)


def find(program: Program) -> Iterator[Finding]:
    tree = program.tree
    done: list[cst.CSTNode] = []
    for call in tree.of(cst.Call):
        room, _, name = tree.qualified(call.func).rpartition(".")
        statement = program.alone(call)
        if not room.startswith("marimo") or any(above in done for above in tree.ancestors(call)):
            continue
        if room == "marimo" and name in _SHOWN and statement is not None:
            yield Finding(
                call,
                f"marimo's {name}(...) shows something on its page; the script leaves it out",
                (Remove(statement),),
            )
        elif room == "marimo" and name == "stop" and statement is not None and call.args:
            yield _stop(program, call, statement)
        elif room == "marimo.ui":
            value = _value(program, call, name)
            if value is None or (statement is None and not isinstance(tree.parents[call], cst.Assign)):
                message = f"marimo's {name}(...) waits for a person, and a script has none: write its value"
                yield Finding(call, message, todo=True)
                continue
            yield Finding(
                call, f"nobody moves a widget in a script; its value there is {value}", _edits(program, call, value)
            )
        else:
            continue
        done.append(call)
    yield from _imports(program, done)


def _stop(program: Program, call: cst.Call, statement: cst.Expr) -> Finding:
    """End the script where marimo stops a cell and those that need it."""
    test = program.tree.text(call.args[0].value)
    for use in program.tree.within(call.args[0], cst.Attribute):
        widget = use.value if use.attr.value == "value" and isinstance(use.value, cst.Name) else None
        binding = program.tree.binding(widget) if widget is not None else None
        if binding is not None and isinstance(binding.value, cst.Call):
            room, _, name = program.tree.qualified(binding.value.func).rpartition(".")
            if room == "marimo.ui" and _value(program, binding.value, name) is not None:
                test = test.replace(program.tree.text(use), program.tree.text(use.value))
    edit = Replace(statement, f"if {test}:\n    raise SystemExit")
    return Finding(call, "mo.stop(...) ends cells of a page; in the script it ends the script", (edit,))


def _value(program: Program, call: cst.Call, name: str) -> str | None:
    """The text of a widget's first value; None where only the page knows it."""
    if name not in _VALUES:
        return None
    *arguments, missing = _VALUES[name]
    for argument in filter(None, arguments):
        given = keyword(call, argument)
        at = _POSITIONS.get((name, argument))
        if given is None and at is not None and len(call.args) > at and call.args[at].keyword is None:
            given = call.args[at]
        if given is not None:
            options = keyword(call, "options") or next(iter(call.args), None)
            is_choice = name in ("dropdown", "radio") and options is not None
            by_name = is_choice and options is not None and isinstance(options.value, cst.Dict)
            text = program.tree.text(given.value)
            return f"{program.tree.text(options.value)}[{text}]" if by_name and options is not None else text
    return missing or None


def _edits(program: Program, call: cst.Call, value: str) -> tuple[Edit, ...]:
    """Put the value in the widget's place, and in that of every `widget.value`."""
    tree, owner = program.tree, program.tree.parents[call]
    edits: list[Edit] = [Replace(call, value)]
    if isinstance(owner, cst.Assign) and isinstance(owner.targets[0].target, cst.Name):
        uses = [tree.parents[use] for use in tree.loads(owner.targets[0].target.value)]
        edits += [
            Replace(use, tree.text(use.value))
            for use in uses
            if isinstance(use, cst.Attribute) and use.attr.value == "value"
        ]
    return tuple(edits)


def _imports(program: Program, done: list[cst.CSTNode]) -> Iterator[Finding]:
    """Drop the import of marimo where nothing that stays needs it."""
    tree = program.tree
    for imported in tree.of(cst.Import):
        if [alias.evaluated_name for alias in imported.names] != ["marimo"]:
            continue
        name = imported.names[0].evaluated_alias or "marimo"
        if all(any(above in done for above in tree.ancestors(use)) for use in tree.loads(name)):
            yield Finding(
                imported, "marimo is what the page needs; the script leaves the import out", (Remove(imported),)
            )


RULE = Rule(
    code="DDP320",
    name="marimo-page",
    summary="marimo's widgets take their first value, `mo.stop(...)` ends the script, and what it shows goes.",
    why="A script has no page: nobody moves a slider or presses a button, and every process must see the same value."
    " What a widget holds before anybody touches it is what marimo itself uses where the notebook runs as a script"
    " (https://docs.marimo.io/guides/scripts/). A run button counts as pressed.",
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
