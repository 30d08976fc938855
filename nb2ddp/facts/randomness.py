"""The random numbers of a notebook."""

from __future__ import annotations

import re

import libcst as cst

from nb2ddp.facts.program import Program
from nb2ddp.syntax.tree import Tree, keyword

_SEED_KEYWORDS = ("random_state", "seed")
#: What draws from the one generator that Python's `random`, NumPy or PyTorch keeps for the whole process.
_DRAWING = {
    "random": re.compile(
        r"random\.(betavariate|choices?|expovariate|gammavariate|gauss|getrandbits|lognormvariate|normalvariate"
        r"|paretovariate|randbytes|randint|random|randrange|sample|shuffle|triangular|uniform|vonmisesvariate"
        r"|weibullvariate)"
    ),
    "numpy": re.compile(
        r"numpy\.random\.(?!seed$|(get|set)_state$|default_rng$)[a-z]\w*"  # classes begin with a capital
    ),
    "torch": re.compile(r"torch\.(bernoulli|multinomial|normal|poisson|rand|randint|randn|randperm|rand(int|n)?_like)"),
}


def seed(program: Program) -> str:
    """The seed the notebook itself names, or transformers' default."""
    tree = program.tree
    for name in _SEED_KEYWORDS:
        for call in tree.of(cst.Call):
            passed = keyword(call, name)
            if passed is not None and tree.is_live(call) and isinstance(tree.literal(passed.value), int):
                return str(tree.literal(passed.value))
    return "42"


def generator(tree: Tree, call: cst.Call) -> str | None:
    """The library from whose common generator a call draws: `random`, `numpy` or `torch`; None where it draws not."""
    name = tree.qualified(call.func)
    return next((library for library, functions in _DRAWING.items() if functions.fullmatch(name)), None)
