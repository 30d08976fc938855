"""DDP107: One process sees one GPU, if a Trainer would otherwise train on all of them."""

from __future__ import annotations

from collections.abc import Iterator

from nb2ddp.facts.loading import is_split, trained_loads, trains_whole
from nb2ddp.facts.program import Program
from nb2ddp.rules.rule import Finding, rule
from nb2ddp.syntax.edits import AddToSetup

_SPREAD = "one process would train on all GPUs, with as many times the batch; the script lets it see one"


@rule("DDP107")
def trained_on_all_gpus(program: Program) -> Iterator[Finding]:
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
