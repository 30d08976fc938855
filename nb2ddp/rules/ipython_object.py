"""DDP315: `get_ipython()` goes."""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from nb2ddp.edits import Remove, Replace
from nb2ddp.model import Severity
from nb2ddp.program import Finding, Program
from nb2ddp.rule import Example, Rule
from nb2ddp.rules.shell_command import shell_findings


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
            command = tree.literal(outer.args[0].value) if outer.args else ...
            if used.attr.value in ("system", "getoutput", "system_raw", "system_piped") and isinstance(command, str):
                yield from shell_findings(program, outer, command)
                continue
            statement = program.alone(outer)
            if statement is not None:
                yield Finding(
                    call,
                    f"get_ipython().{used.attr.value}(...) steers a notebook",
                    (Remove(statement),),
                    severity=Severity.WARNING,
                )
                continue
        if isinstance(used, (cst.Attribute, cst.Subscript)):
            yield Finding(
                call,
                "get_ipython() is None in a script: write what this does in Python",
                (Replace(call, "None"),),
                severity=Severity.WARNING,
                todo=True,
            )
        else:
            yield Finding(call, "get_ipython() is None in a script", (Replace(call, "None"),))


RULE = Rule(
    code="DDP315",
    name="ipython-object",
    summary="`get_ipython()` becomes None, and what is only asked of it goes; its shell calls run as shell commands.",
    why="The name exists in IPython alone.",
    find=find,
    examples=(
        Example(
            'in_notebook = get_ipython() is not None\nget_ipython().run_line_magic("matplotlib", "inline")\n',
            "in_notebook = None is not None\n",
        ),
        Example("def get_ipython():\n    return 1\nx = get_ipython()\n"),
    ),
)
