"""DDP402: Where a notebook draws at random before training, `set_seed(...)` stands at the top of the script."""

from __future__ import annotations

import re
from collections.abc import Iterator

import libcst as cst

from nb2ddp.facts.effects import Does, samples
from nb2ddp.facts.execution import Phase
from nb2ddp.facts.flow import owner_of
from nb2ddp.facts.loading import has_new_head, is_load
from nb2ddp.facts.program import Program
from nb2ddp.facts.randomness import generator, seed, seeded, seeds_itself
from nb2ddp.rules.rule import Finding, rule
from nb2ddp.syntax.edits import AddToSetup, Replace, SetKeyword
from nb2ddp.syntax.tree import Tree, argument, keyword, method

#: What draws weights that no checkpoint holds, beside a load: adapters of PEFT's own (Unsloth seeds its adapters).
_NEW_WEIGHTS = re.compile(r"peft(\.\w+)*\.get_peft_model|transformers(\.\w+)*\.\w+\.from_config")
#: What divides or orders rows: methods of data sets and tables, and functions.
_DATASET_METHODS = frozenset({"sample", "shuffle", "train_test_split"})
_DATA_FUNCTIONS = re.compile(
    r"sklearn(\.\w+)*\.(train_test_split|shuffle|resample)|torch\.utils\.data(\.\w+)*\.random_split"
)
_GENERATOR = re.compile(r"(numpy\.)?random\.")
_INTERLEAVES = re.compile(r"datasets(\.\w+)*\.interleave_datasets")
_STREAMING = re.compile(r"\bstreaming\s*=\s*True\b|\bto_iterable_dataset\(")
_OWN = "without a seed takes one from the operating system, another in each process; the script gives it one"
_COMMON = "draws at random, and nothing above seeds it; the script sets one seed in all processes"


@rule("DDP402")
def unseeded_randomness(program: Program) -> Iterator[Finding]:
    tree, calls = program.tree, program.execution.calls
    seeds = [(tree.start(call), library) for call in calls(does=Does.SEED) for library in seeded(tree, call)]
    for call in calls(phase=Phase.TOGETHER):
        if program.rewards.is_only_here(call):
            continue
        if _takes_own_seed(tree, call):
            text = tree.text(call.func)
            edit = SetKeyword(call, "seed", seed(tree)) if call.args else Replace(call, f"{text}({seed(tree)})")
            yield Finding(call, f"{text} {_OWN}", (edit,))
        elif (library := _drawn_from(tree, call)) and not any(
            at < tree.start(call) and each == library for at, each in seeds
        ):
            setup = AddToSetup(f"set_seed({seed(tree)})  # the same random numbers in every process")
            yield Finding(call, f"{tree.text(call.func)} {_COMMON}", (setup,))


def _takes_own_seed(tree: Tree, call: cst.Call) -> bool:
    """True for a generator, an interleaving, or the shuffle of a streamed data set that is given no seed."""
    if _INTERLEAVES.fullmatch(tree.qualified(call.func)):
        return keyword(call, "probabilities") is not None and keyword(call, "seed") is None
    return seeds_itself(tree, call) or (_streams(tree, call) and not _is_given_seed(tree, call))


def _streams(tree: Tree, call: cst.Call) -> bool:
    """True for the shuffle of a data set that is streamed."""
    owner = owner_of(call) if method(call) == "shuffle" else None
    parts = tree.made_of(owner) if owner is not None else []
    return keyword(call, "buffer_size") is not None or any(_STREAMING.search(tree.text(part)) for part in parts)


def _drawn_from(tree: Tree, call: cst.Call) -> str | None:
    """The library whose common generator a call draws from without a seed; None for no such call."""
    name, owner = tree.qualified(call.func), owner_of(call)
    if samples(tree, call) or _makes_weights(tree, call):
        return "torch"
    if (library := generator(tree, call)) is not None:
        return library
    of_generator = owner is not None and bool(_GENERATOR.match(tree.maker(owner)))
    of_generator |= method(call) == "sample" and len(call.args) > 1 and call.args[1].keyword is None
    divides = (method(call) in _DATASET_METHODS and not of_generator) or _DATA_FUNCTIONS.fullmatch(name)
    if not divides or _is_given_seed(tree, call):
        return None
    return "torch" if name.startswith("torch.") else "numpy"  # datasets, pandas and scikit-learn take NumPy's


def _makes_weights(tree: Tree, call: cst.Call) -> bool:
    """True for a call that loads a model with a new head, or makes adapters or a whole model, of drawn weights."""
    if is_load(tree, call):
        return has_new_head(tree, call)
    return bool(_NEW_WEIGHTS.fullmatch(tree.qualified(call.func))) or keyword(call, "peft_config") is not None


def _is_given_seed(tree: Tree, call: cst.Call) -> bool:
    """True for a call that is given a seed, or told not to draw."""
    given = [keyword(call, name) for name in ("seed", "random_state", "generator")]
    if method(call) == "shuffle":
        given.append(argument(call, "seed", 0))
    still = keyword(call, "shuffle")
    stays = still is not None and tree.literal(still.value) is False
    return stays or any(each is not None and tree.literal(each.value) is not None for each in given)
