"""DDP107: One process sees one GPU, if a Trainer would otherwise train on all of them.

Started without a launcher, transformers' Trainer trains on every GPU it sees, with `torch.nn.DataParallel`, and gives
each the per-device batch: on four GPUs, a step has four times the notebook's samples (`TrainingArguments.n_gpu`,
`train_batch_size`). Unsloth prevents that in TRL's trainers, and in any for the models that it loads for LoRA.
"""

from __future__ import annotations

from collections.abc import Iterator

from nb2ddp.facts.loading import is_split, trained_loads, trains_whole
from nb2ddp.facts.program import Program
from nb2ddp.rules.rule import Example, Finding, Rule
from nb2ddp.syntax.edits import AddToSetup

_SPREAD = "one process would train on all GPUs, with as many times the batch; the script lets it see one"


def find(program: Program) -> Iterator[Finding]:
    tree, trainers = program.tree, program.training.trainers
    chosen = [value for node, name, value in program.settings if name == "CUDA_VISIBLE_DEVICES" and tree.is_live(node)]
    uses_several = any("," in str(value) for value in chosen) or any(is_split(tree, load) for load in program.loads)
    if trainers and not (uses_several or program.options.split_model) and (chosen or not _is_prevented(program)):
        yield Finding(trainers[0], _SPREAD, (AddToSetup("see_one_gpu()", before_imports=True),))


def _is_prevented(program: Program) -> bool:
    """True for TRL's trainers, whose `_n_gpu` Unsloth sets (models/rl.py:649), and where it loads a model for LoRA."""
    tree = program.tree
    families = [tree.family(each.func) for each in program.training.trainers]
    if any(tree.imports("unsloth")) and all(family.startswith(("trl.", "unsloth.")) for family in families):
        return True
    trained = trained_loads(tree, program.training.trainers, program.loads) or program.loads
    of_unsloth = [tree.qualified(load.func).startswith("unsloth") for load in trained]
    return bool(trained) and all(of_unsloth) and not trains_whole(tree, trained)


_LOAD = """\
from unsloth import FastModel
model, tokenizer = FastModel.from_pretrained("m", {argument})
from transformers import Trainer
trainer = Trainer(model = model, train_dataset = rows)
trainer.train()
"""
RULE = Rule(
    name="trained-on-all-gpus",
    find=find,
    examples=(
        Example(_LOAD.format(argument="full_finetuning = True"), reported=True),
        Example(
            """\
from transformers import AutoModelForCausalLM, Trainer
model = AutoModelForCausalLM.from_pretrained("m")
trainer = Trainer(model = model, train_dataset = rows)
trainer.train()
""",
            reported=True,
        ),
        Example(_LOAD.replace("transformers import", "trl import SFTTrainer as").format(argument="r = 8")),
        Example(_LOAD.format(argument="load_in_4bit = True")),
        Example(_LOAD.format(argument='device_map = "balanced"')),
        Example(
            'import os\nos.environ["CUDA_VISIBLE_DEVICES"] = "1"\n' + _LOAD.format(argument="r = 8"), reported=True
        ),
        Example('import os\nos.environ["CUDA_VISIBLE_DEVICES"] = "0,1"\n' + _LOAD.format(argument="r = 8")),
    ),
)
