"""The secrets that a script reads from its environment."""

from __future__ import annotations

import re

from nb2ddp.facts.needs import Kind
from nb2ddp.facts.program import Program

#: What a shell can export.
_NAME = re.compile(r"[A-Za-z_]\w*", re.ASCII)


def handed_on(program: Program) -> list[str]:
    """Return the variables that a launcher passes on: the token for gated models, and the job's secrets."""
    return list(dict.fromkeys(["HF_TOKEN", *secrets(program)]))


def secrets(program: Program) -> list[str]:
    """Return the variables that a job needs."""
    names = [need.name for need in program.needs if need.kind is Kind.VARIABLE]
    return [name for name in dict.fromkeys(names) if _NAME.fullmatch(name)]
