"""DDP315: `get_ipython()` goes."""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from nb2ddp.facts.program import Program
from nb2ddp.facts.shell import Command
from nb2ddp.results import Severity
from nb2ddp.rules.rule import Example, Finding, Rule
from nb2ddp.syntax.edits import Remove, Replace
from nb2ddp.syntax.tree import method

_NAMES = ("get_ipython", "IPython.get_ipython", "IPython.core.getipython.get_ipython")
#: Its methods that run a command.
_SHELL = ("system", "system_raw", "system_piped", "getoutput")
_RUN = "get_ipython() works in a notebook only; the script runs the command with subprocess"


def find(program: Program) -> Iterator[Finding]:
    tree = program.tree
    for call in tree.of(cst.Call):
        name = tree.qualified(call.func)
        if name not in _NAMES or call.args or program.installs.covers(call):
            continue
        used = tree.parents[call]
        outer = tree.call_of(used)
        statement = program.alone(outer) if outer is not None else None
        if outer is not None and method(outer) in _SHELL and len(outer.args) == 1:
            yield _run(program, outer, tree.text(outer.args[0].value))
        elif outer is not None and statement is not None:
            said = f"get_ipython().{method(outer)}(...) steers a notebook; the script leaves it out: look whether it"
            yield Finding(call, f"{said} matters", (Remove(statement),), severity=Severity.WARNING)
        elif isinstance(used, (cst.Attribute, cst.Subscript)):
            said = "get_ipython() is None in a script, so this fails: write what it does in Python"
            yield Finding(call, said, (Replace(call, "None"),), todo=True)
        else:
            yield Finding(call, "get_ipython() works in a notebook only; the script has None", (Replace(call, "None"),))


def _run(program: Program, call: cst.Call, command: str) -> Finding:
    """Run a command that is worked out when the script runs."""
    statement, shell = program.alone(call), Command(command, background=False, bash=False)
    if statement is None:
        return Finding(call, _RUN, (Replace(call, shell.lines),))
    return Finding(call, _RUN, (Replace(statement, shell.run), *program.placement.once(statement)))


RULE = Rule(
    code="DDP315",
    name="ipython-object",
    summary="`get_ipython()` becomes None; its shell calls run as shell commands.",
    why="The function exists only in IPython. Code that only queries it is removed.",
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
