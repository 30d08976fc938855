"""DDP315: `get_ipython()` becomes None; a line that asks it for something gets a `TODO`.

The function exists only in IPython.
"""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from nb2ddp.facts.program import Program
from nb2ddp.rules.rule import Example, Finding, Rule
from nb2ddp.syntax.edits import Replace

_NAMES = ("get_ipython", "IPython.get_ipython", "IPython.core.getipython.get_ipython")


def find(program: Program) -> Iterator[Finding]:
    tree = program.tree
    for call in tree.of(cst.Call):
        name = tree.qualified(call.func)
        if name not in _NAMES or call.args or program.installs.covers(call):
            continue
        if isinstance(tree.parents[call], (cst.Attribute, cst.Subscript)):
            said = "get_ipython() is None in a script, so this fails: write what it does in Python"
            yield Finding(call, said, (Replace(call, "None"),), todo=True)
        else:
            yield Finding(call, "get_ipython() works in a notebook only; the script has None", (Replace(call, "None"),))


RULE = Rule(
    name="ipython-object",
    find=find,
    examples=(
        Example(
            'in_notebook = get_ipython() is not None\nlines = get_ipython().getoutput(f"ls {folder}")\n',
            "in_notebook = None is not None\n# TODO[nb2ddp] DDP315: get_ipython() is None in a script, so this fails:"
            ' write what it does in Python\nlines = None.getoutput(f"ls {folder}")\n',
        ),
        Example("def get_ipython():\n    return 1\nx = get_ipython()\n"),
    ),
)
