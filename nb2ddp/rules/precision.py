"""DDP214: A fixed `fp16 = True` or `bf16 = True` becomes what the GPU has, where Unsloth loads the model so."""

from __future__ import annotations

import re
from collections.abc import Iterator

import libcst as cst

from nb2ddp.facts.program import Program
from nb2ddp.rules.rule import Finding, rule
from nb2ddp.syntax.arguments import constant, is_closed, passed, set_argument
from nb2ddp.syntax.edits import Edit, Wrap
from nb2ddp.syntax.tree import Tree, argument, keyword

_SUPPORTED = "is_bfloat16_supported"
#: How code asks for bfloat16, by Unsloth's function or torch's.
_ASKS = re.compile(r"is_bf(loat)?16_supported")
_STOPS = "{} = True stops on a GPU {} bfloat16, by which Unsloth chooses the model's dtype; the script asks the GPU"


@rule("DDP214")
def fixed_precision(program: Program) -> Iterator[Finding]:
    tree = program.tree
    for call in program.training.arguments if program.trains_with_unsloth else ():
        loads = _loads(program, call)
        if not loads or not is_closed(tree, call):
            continue
        fixed = {name for name in ("fp16", "bf16") if constant(tree, call, name) is True}
        if fixed and all(_follows_gpu(tree, load) for load in loads):
            has_one = _supported(tree, call)
            values = {"fp16": f"not {has_one}", "bf16": has_one}
            edits = [_set(tree, call, name, value) for name, value in values.items() if _is_set(tree, call, name)]
            said = _STOPS.format(*(("fp16", "with") if "fp16" in fixed else ("bf16", "without")))
            yield Finding(call, said, tuple(edits))


def _loads(program: Program, arguments: cst.Call) -> list[cst.Call]:
    """Unsloth's loads of the models that TRL trains with some arguments; every such load where not all are known.

    Several may lead to one model: a base model, and what is made of it.
    """
    tree, training = program.tree, program.training
    early = [load for load in program.loads if training.is_before_end(load)]
    trainers = [each for each in training.trainers if arguments in _calls(tree, each)]
    models = [argument(trainer, "model", 0) for trainer in trainers]
    loaded = [_calls(tree, model.value).intersection(early) if model else () for model in models]
    found = [load for each in loaded for load in each] if loaded and all(loaded) else early
    is_trls = all(tree.family(each.func).startswith(("trl.", "unsloth.")) for each in trainers or [arguments])
    return [load for load in found if is_trls and tree.qualified(load.func).startswith("unsloth.")]


def _calls(tree: Tree, node: cst.CSTNode) -> set[cst.Call]:
    """The calls that a value is made of."""
    return {call for part in tree.made_of(node) for call in tree.within(part, cst.Call)}


def _follows_gpu(tree: Tree, load: cst.Call) -> bool:
    """True for the load of a model for an adapter, whose dtype is the best that the GPU has."""
    given = passed(tree, load, "dtype") or passed(tree, load, "torch_dtype") or argument(load, "dtype", 2)
    dtype = None if given is None or tree.literal(given.value) is None else tree.text(tree.value(given.value))
    trains_all = constant(tree, load, "full_finetuning") not in (None, False)
    return is_closed(tree, load) and not trains_all and (dtype is None or bool(_ASKS.search(dtype)))


def _is_set(tree: Tree, call: cst.Call, name: str) -> bool:
    """True for a field to write: one that is missing or a constant, not one that is worked out."""
    return constant(tree, call, name) is not ...


def _set(tree: Tree, call: cst.Call, name: str, value: str) -> Edit:
    """Pass a field; one that is missing stands above the other, or in front of it, and is written as that is."""
    other = keyword(call, "bf16" if name == "fp16" else "fp16")
    if other is None or passed(tree, call, name) is not None:
        return set_argument(tree, call, name, value)
    equal = tree.source[tree.start(other) + len(name) : tree.start(other.value)]
    lead = tree.indentation(other)
    return Wrap(other, f"{name}{equal}{value}," + (" " if lead.strip() else f"\n{lead}"), "")


def _supported(tree: Tree, call: cst.Call) -> str:
    """A call of Unsloth's function, by the notebook's own name for it."""
    binding = tree.bound(_SUPPORTED, call)
    is_theirs = binding is not None and (binding.imported or "").startswith("unsloth.")
    return f"{_SUPPORTED}()" if is_theirs else f"unsloth.{_SUPPORTED}()"
