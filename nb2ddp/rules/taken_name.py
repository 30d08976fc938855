"""DDP006: A notebook that assigns to `os`, `sys`, `subprocess` or `PartialState` is refused.

The code that nb2ddp inserts between the cells uses these names, and would fail in the middle of a job.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from nb2ddp.facts.program import Program
from nb2ddp.results import Severity
from nb2ddp.rules.rule import Example, Finding, Rule

#: Names that inserted code uses anywhere in the script, and what they must stand for.
_EVERYWHERE = {
    "os": r"os",
    "sys": r"sys",
    "subprocess": r"subprocess",
    "asyncio": r"asyncio",
    "PartialState": r"accelerate(\.\w+)*\.PartialState",
}
#: Names that only functions of the setup block use, which are called up to the last training.
_BEFORE_END = {
    "gather_object": r"accelerate(\.\w+)*\.gather_object",
    **dict.fromkeys(("iter", "max", "next", "range"), r"(?!)"),
}


def find(program: Program) -> Iterator[Finding]:
    tree = program.tree
    for name, wanted in (_EVERYWHERE | _BEFORE_END).items():
        for binding in tree.bindings(name):
            if not tree.is_live(binding.node) or program.installs.covers(binding.node):
                continue
            matters = name in _EVERYWHERE or program.training.is_before_end(binding.node)
            if matters and not re.fullmatch(wanted, binding.imported or ""):
                said = "is a name that the script's own code needs, so there is no script: choose another"
                yield Finding(binding.node, f"{name!r} {said}")


RULE = Rule(
    name="taken-name",
    find=find,
    severity=Severity.ERROR,
    examples=(
        Example("sys = 'You are a helpful assistant.'\ntrainer.train()\n", reported=True),
        Example("import os.path, sys\nfrom accelerate import PartialState\ntrainer.train()\nmax = 3\n"),
    ),
)
