"""DDP312: a figure is saved where the notebook shows it."""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from nb2ddp.facts.program import Program
from nb2ddp.rules.rule import Example, Finding, Rule
from nb2ddp.syntax.edits import Edit, InsertAfter, Remove, Replace
from nb2ddp.syntax.tree import small_statements


def find(program: Program) -> Iterator[Finding]:
    tree = program.tree
    shows = [
        call
        for call in tree.of(cst.Call)
        if tree.qualified(call.func) in ("matplotlib.pyplot.show", "pylab.show") and tree.is_live(call)
    ]
    for number, call in enumerate(shows, start=1):
        statement = program.alone(call)
        if statement is None:
            continue
        line = tree.statement(statement)
        if not isinstance(call.func, cst.Attribute) or len(small_statements(line)) != 1:
            edit: Edit = Remove(statement)
            if isinstance(call.func, cst.Attribute) and not program.execution.runs(call):
                plt = tree.text(call.func.value)
                edit = Replace(statement, f'{plt}.savefig("figure_{number}.png"); {plt}.close()')
            yield Finding(call, "a script has no notebook to draw in", (edit,))
            continue
        pyplot = tree.text(call.func.value)
        close = f"{pyplot}.close()"
        guard = program.placement.on_main_process(statement)
        edits = (Replace(statement, f'{pyplot}.savefig("figure_{number}.png")'), *guard, InsertAfter(line, close))
        yield Finding(call, "a script has no notebook to draw in: the figure is saved", edits)


RULE = Rule(
    code="DDP312",
    name="figure-shown",
    summary='`plt.show()` becomes `plt.savefig("figure_1.png")`, on the main process.',
    why="A job on a server has no screen.",
    find=find,
    examples=(
        Example(
            "import matplotlib.pyplot as plt\nplt.plot(losses)\nplt.show()\n",
            'import matplotlib.pyplot as plt\nplt.plot(losses)\nplt.savefig("figure_1.png")\nplt.close()\n',
        ),
        Example("window.show()\n"),
    ),
)
