"""DDP315: `get_ipython()` goes."""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from nb2ddp.facts.program import Program
from nb2ddp.results import Severity
from nb2ddp.rules.rule import Example, Finding, Rule
from nb2ddp.syntax.edits import Remove, Replace

_RUN = "get_ipython() works in a notebook only; the script runs the command with subprocess"


def find(program: Program) -> Iterator[Finding]:
    tree = program.tree
    for call in tree.of(cst.Call):
        name = tree.qualified(call.func)
        if name not in ("get_ipython", "IPython.get_ipython", "IPython.core.getipython.get_ipython") or call.args:
            continue
        if program.installs.covers(call):
            continue
        used = tree.parents[call]
        outer = tree.parents[used] if isinstance(used, cst.Attribute) else None
        if isinstance(outer, cst.Call) and isinstance(used, cst.Attribute):
            if used.attr.value in ("system", "system_raw", "system_piped", "getoutput") and len(outer.args) == 1:
                yield _run(program, outer, tree.text(outer.args[0].value))
                continue
            statement = program.alone(outer)
            if statement is not None:
                yield Finding(
                    call,
                    f"get_ipython().{used.attr.value}(...) steers a notebook; the script leaves it out: look whether"
                    " it matters",
                    (Remove(statement),),
                    severity=Severity.WARNING,
                )
                continue
        if isinstance(used, (cst.Attribute, cst.Subscript)):
            yield Finding(
                call,
                "get_ipython() is None in a script, so this fails: write what it does in Python",
                (Replace(call, "None"),),
                todo=True,
            )
        else:
            yield Finding(call, "get_ipython() works in a notebook only; the script has None", (Replace(call, "None"),))


def _run(program: Program, call: cst.Call, command: str) -> Finding:
    """Run a command that is worked out when the script runs."""
    statement = program.alone(call)
    if statement is None:
        lines = f"subprocess.run({command}, shell=True, capture_output=True, text=True).stdout.splitlines()"
        return Finding(call, _RUN, (Replace(call, lines),))
    run = Replace(statement, f"subprocess.run({command}, shell=True)")
    return Finding(call, _RUN, (run, *program.placement.once(statement)))


RULE = Rule(
    code="DDP315",
    name="ipython-object",
    summary="`get_ipython()` becomes None, and what is only asked of it goes; its shell calls run as shell commands.",
    why="The name exists in IPython alone.",
    find=find,
    examples=(
        Example(
            'in_notebook = get_ipython() is not None\nlines = get_ipython().getoutput(f"ls {folder}")\n',
            "in_notebook = None is not None\n"
            'lines = subprocess.run(f"ls {folder}", shell=True, capture_output=True, text=True).stdout.splitlines()\n',
        ),
        Example("def get_ipython():\n    return 1\nx = get_ipython()\n"),
    ),
)
