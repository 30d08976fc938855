"""DDP402: seed what would otherwise differ between processes."""

from __future__ import annotations

import re
from collections.abc import Iterator

import libcst as cst

from nb2ddp.program import Finding, Program
from nb2ddp.rule import Example, Rule
from nb2ddp.tree import keyword

#: Functions that draw from a generator which nothing has seeded.
_DRAWING = re.compile(
    r"random\.(random|randint|randrange|choice|choices|sample|shuffle|uniform|gauss|normalvariate|getrandbits)"
    r"|numpy\.random\.(rand|randn|randint|random|choice|shuffle|permutation|uniform|normal|sample|random_sample)"
    r"|torch\.(rand|randn|randint|randperm|rand_like|randn_like|normal|multinomial|bernoulli)"
)
_SEEDING = re.compile(
    r"(transformers\.|accelerate\.utils\.|trl\.)?set_seed|(random|numpy\.random|torch)\.(manual_)?seed"
)
#: Methods of a data set that draw, unless they are given a seed.
_DATASET_METHODS = frozenset({"shuffle", "train_test_split"})
_SEED_KEYWORDS = ("random_state", "seed")


def find(program: Program) -> Iterator[Finding]:
    tree = program.tree
    for call in tree.of(cst.Call):
        if not tree.is_live(call) or not program.runs_before_end(call):
            continue
        if _DRAWING.fullmatch(tree.qualified(call.func)):
            message = f"{tree.text(call.func)} draws other numbers in each process"
        elif (
            isinstance(call.func, cst.Attribute)
            and call.func.attr.value in _DATASET_METHODS
            and not tree.qualified(call.func).startswith(("random.", "numpy.random."))
            and not any(keyword(call, name) for name in ("seed", "random_state", "generator", "shuffle"))
        ):
            message = f"{call.func.attr.value} without a seed gives each process other data"
        else:
            continue
        yield Finding(call, message, needs=frozenset({"seed"}), fixed=True)


def seed(program: Program) -> str:
    """The seed the notebook itself names, or transformers' default."""
    tree = program.tree
    for name in _SEED_KEYWORDS:
        for call in tree.of(cst.Call):
            passed = keyword(call, name)
            if passed is not None and tree.is_live(call) and isinstance(tree.literal(passed.value), int):
                return str(tree.literal(passed.value))
    return "42"


RULE = Rule(
    code="DDP402",
    name="unseeded-randomness",
    summary="`set_seed(...)` in the setup block, where something before training draws random numbers without a seed.",
    why="Each process would shuffle or split the data its own way: samples are then trained twice or never. "
    "datasets takes a missing seed from NumPy's global state.",
    find=find,
    examples=(
        Example(
            "import random\nrows = random.sample(rows, 100)\nrows = dataset.shuffle()\ntrainer.train()\n", reported=True
        ),
        Example("split = dataset.train_test_split(test_size = 0.1, seed = 1)\n"),
    ),
)
