"""The random numbers of a notebook."""

from __future__ import annotations

import libcst as cst

from nb2ddp.facts.program import Program
from nb2ddp.syntax.tree import keyword

_SEED_KEYWORDS = ("random_state", "seed")


def seed(program: Program) -> str:
    """The seed the notebook itself names, or transformers' default."""
    tree = program.tree
    for name in _SEED_KEYWORDS:
        for call in tree.of(cst.Call):
            passed = keyword(call, name)
            if passed is not None and tree.is_live(call) and isinstance(tree.literal(passed.value), int):
                return str(tree.literal(passed.value))
    return "42"
