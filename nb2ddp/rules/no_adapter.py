"""DDP217: A model that Unsloth loads in 4 bits, and that gets no adapter, gets a `TODO`: its trainer refuses it.

"You cannot perform fine-tuning on purely quantized models" (transformers 4.56.2 and 5.17.0, trainer_utils.py), in every
process and before the first step. So it is where the cell that calls `get_peft_model` is commented out. Only models of
Unsloth's own account are looked at: what another account has may be an adapter, which Unsloth loads with its model.
"""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from nb2ddp.facts.loading import has_lora, model_name, trained_loads, trains_whole
from nb2ddp.facts.program import Program
from nb2ddp.results import Severity
from nb2ddp.rules.rule import Example, Finding, Rule
from nb2ddp.syntax.arguments import constant
from nb2ddp.syntax.tree import Tree, method

_MESSAGE = (
    "the model is loaded in 4 bits and gets no adapter, so this trainer refuses to train it: call"
    " FastLanguageModel.get_peft_model above, or load it with full_finetuning = True"
)


def find(program: Program) -> Iterator[Finding]:
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


_LOAD = """\
from trl import SFTTrainer
from unsloth import FastLanguageModel
model, tokenizer = FastLanguageModel.from_pretrained("unsloth/llama-3-8b-bnb-4bit", load_in_4bit = True)
"""
_TRAINER = "trainer = SFTTrainer(model = model, train_dataset = rows)\ntrainer.train()\n"

RULE = Rule(
    name="no-adapter",
    find=find,
    severity=Severity.WARNING,
    also_alone=True,
    examples=(
        Example(f"{_LOAD}{_TRAINER}", f"{_LOAD}# TODO[nb2ddp] DDP217: {_MESSAGE}\n{_TRAINER}"),
        Example(f"{_LOAD}model = FastLanguageModel.get_peft_model(model, r = 16)\n{_TRAINER}"),
        Example(f"{_LOAD.replace('unsloth/', 'me/')}{_TRAINER}"),
        Example(f"{_LOAD.replace('True', 'False')}{_TRAINER}"),
        Example(f"{_LOAD.replace('True', 'True, full_finetuning = True')}{_TRAINER}"),
    ),
)
