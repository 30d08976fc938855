"""The random numbers of a notebook."""

from __future__ import annotations

import re

import libcst as cst

from nb2ddp.facts.effects import Does, row
from nb2ddp.syntax.tree import Tree

#: What takes a seed from the operating system where it is given none, whatever has been seeded before.
_GENERATORS = re.compile(r"numpy\.random\.(default_rng|RandomState|seed)|random\.(Random|seed)")
_SEED_KEYWORDS = ("random_state", "seed")


def seed(tree: Tree) -> str:
    """The seed the notebook itself names, or transformers' default."""
    given = [tree.literal(value) for name in _SEED_KEYWORDS for value in tree.given(name)]
    return str(next((value for value in given if isinstance(value, int)), 42))


def generator(tree: Tree, call: cst.Call) -> str | None:
    """The library from whose common generator a call draws: `random`, `numpy` or `torch`; None where it draws not."""
    known = row(tree, call.func, call)
    return known.library[0] if known.does is Does.DRAW and known.library else None


def seeds_itself(tree: Tree, call: cst.Call) -> bool:
    """True for a call that seeds a generator with what the operating system gives: `random.Random()`."""
    return bool(_GENERATORS.fullmatch(tree.qualified(call.func))) and not call.args


def seeded(tree: Tree, call: cst.Call) -> tuple[str, ...]:
    """The libraries whose common generators a call gives a seed."""
    is_given = bool(call.args) and tree.literal(call.args[0].value) is not None
    known = row(tree, call.func, call)
    return tuple(known.library) if is_given and known.does is Does.SEED else ()
