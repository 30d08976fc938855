"""DDP316: nobody answers a debugger."""

from __future__ import annotations

import re
from collections.abc import Iterator

import libcst as cst

from nb2ddp.facts.program import Program
from nb2ddp.rules.rule import Example, Finding, Rule, left_out

_STOPPING = re.compile(r"breakpoint|(pdb|ipdb|pudb)\.(set_trace|post_mortem|pm)|code\.interact")


def find(program: Program) -> Iterator[Finding]:
    for call in program.tree.of(cst.Call):
        if _STOPPING.fullmatch(program.tree.qualified(call.func)):
            said = f"{program.tree.text(call.func)}() would wait for a person; the script leaves it out"
            yield Finding(call, said, (left_out(program, call),))


RULE = Rule(
    code="DDP316",
    name="breakpoint",
    summary="`breakpoint()` and `pdb.set_trace()` are removed.",
    why="One process would stop for input that nobody gives, and the others would wait for it.",
    find=find,
    examples=(
        Example(
            "import pdb; pdb.set_trace()\nif len(rows) == 0: breakpoint()\n", "import pdb\nif len(rows) == 0: pass\n"
        ),
        Example("def breakpoint(x):\n    return x\ny = breakpoint(1)\n"),
    ),
)
