"""The random numbers of a notebook."""

from __future__ import annotations

import re

import libcst as cst

from nb2ddp.facts.effects import Does, row
from nb2ddp.syntax.tree import Tree

#: Calls that take a seed from the operating system if they get none, no matter what has been seeded before.
_GENERATORS = re.compile(r"numpy\.random\.(default_rng|RandomState|seed)|random\.(Random|seed)")
_SEED_KEYWORDS = ("random_state", "seed")


def seed(tree: Tree) -> str:
    """Return the seed that the notebook sets, or transformers' default."""
    given = [tree.literal(value) for name in _SEED_KEYWORDS for value in tree.given(name)]
    return str(next((value for value in given if isinstance(value, int)), 42))


def generator(tree: Tree, call: cst.Call) -> str | None:
    """Return the library from whose global generator a call draws: `random`, `numpy` or `torch`; None for none."""
    known = row(tree, call.func, call)
    return known.library[0] if known.does is Does.DRAW and known.library else None


def seeds_itself(tree: Tree, call: cst.Call) -> bool:
    """Return whether a call takes the seed of a generator from the operating system: `random.Random()`."""
    return bool(_GENERATORS.fullmatch(tree.qualified(call.func))) and not call.args


def seeded(tree: Tree, call: cst.Call) -> tuple[str, ...]:
    """Return the libraries whose global generators a call seeds."""
    is_given = bool(call.args) and tree.literal(call.args[0].value) is not None
    known = row(tree, call.func, call)
    return tuple(known.library) if is_given and known.does is Does.SEED else ()
