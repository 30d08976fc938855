"""DDP217: A model that Unsloth loads in 4 bits, and that gets no adapter, gets a `TODO`: its trainer refuses it."""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from nb2ddp.facts.loading import has_lora, model_name, trained_loads, trains_whole
from nb2ddp.facts.program import Program
from nb2ddp.results import Severity
from nb2ddp.rules.rule import Finding, rule
from nb2ddp.syntax.arguments import constant
from nb2ddp.syntax.tree import Tree, method

_MESSAGE = (
    "the model is loaded in 4 bits and gets no adapter, so this trainer refuses to train it: call"
    " FastLanguageModel.get_peft_model above, or load it with full_finetuning = True"
)


@rule("DDP217", Severity.WARNING, also_alone=True)
def no_adapter(program: Program) -> Iterator[Finding]:
    tree, trainers = program.tree, program.training.trainers
    if has_lora(tree) or any(method(call) == "add_adapter" for call in program.execution.calls()):
        return
    for trainer in trainers:
        loads = trained_loads(tree, [trainer], program.loads)
        if loads and all(_is_quantized(tree, load) for load in loads) and not trains_whole(tree, loads):
            yield Finding(trainer, _MESSAGE, todo=True)


def _is_quantized(tree: Tree, load: cst.Call) -> bool:
    """Whether a load gives a model of Unsloth's account in 4 bits: it is asked to, or the model's name says so."""
    name, asked = model_name(tree, load), constant(tree, load, "load_in_4bit")
    is_known = tree.qualified(load.func).startswith("unsloth.Fast") and name.startswith("unsloth/") and " " not in name
    return is_known and (asked is True or (asked is None and name.endswith("-bnb-4bit")))
