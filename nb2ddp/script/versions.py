"""Find the Unsloth versions that a script needs on several processes; `nb2ddp/facts/releases.toml` lists them."""

from __future__ import annotations

import libcst as cst
from packaging.version import Version

from nb2ddp.facts.loading import ModelKind, has_lora, is_general, model_name, trained_loads, trains_lora, trains_whole
from nb2ddp.facts.program import Program
from nb2ddp.facts.releases import rows
from nb2ddp.syntax.arguments import passed
from nb2ddp.syntax.tree import argument


def tries_kernels(program: Program) -> bool:
    """Return whether Unsloth packs rows and its trial of an attention kernel, while it compiles a block, hangs in DDP.

    The trial has a backward pass. Under DDP, where checkpointing is non-reentrant, that pass unpacks tensors with the
    block's hooks, so it runs the block again in another thread, which waits for the compilation lock that the first
    thread holds. This was observed with full fine-tuning, a mixture of experts, and LoRA on phi-2 and SmolLM3, but not
    with LoRA on the dense models for which Unsloth has its own classes (Unsloth 2026.10.9, torch 2.11;
    benchmarks/results/kernel-trial.json). The trial is `_varlen_in_graph_probe` of
    unsloth/utils/hf_packed_attention.py, which the wheel 2026.10.8 does not have.
    """
    tree, training = program.tree, program.training
    trains_all = not has_lora(tree) or trains_whole(tree, program.loads)
    loads = trained_loads(tree, training.trainers, program.loads)
    is_other = program.model_kind is not ModelKind.DENSE_TEXT or any(is_general(tree, load) for load in loads)
    never_packs = any("gpt-oss" in model_name(tree, load) for load in loads)  # PADDING_FREE_BLOCKLIST of trainer.py
    packs = any(map(_may_pack, training.trainers, training.trainer_classes)) and not never_packs
    return packs and (trains_all or is_other)


def _may_pack(trainer: cst.Call, name: str) -> bool:
    """Return whether Unsloth may pack the rows of a trainer; if the notebook passes a collator, Unsloth pads them.

    Source: `blocked` in `_patch_sft_trainer_auto_packing` (unsloth/trainer.py, 2026.10.9).
    """
    collator = argument(trainer, "data_collator", 2)
    has_collator = collator is not None and not (
        isinstance(collator.value, cst.Name) and collator.value.value == "None"
    )
    return name.endswith(("SFTTrainer", "UnslothTrainer")) and not has_collator


def kinds(program: Program) -> frozenset[str]:
    """Return the kinds of a notebook, of those that need a minimum version."""
    tree, training, kind = program.tree, program.training, program.model_kind
    calls = [*training.arguments, *training.trainers]
    # a trainer in another module may be GRPO's
    is_grpo = not calls or any(tree.family(call.func).endswith(("GRPOConfig", "GRPOTrainer")) for call in calls)
    is_text = kind is ModelKind.DENSE_TEXT
    is_set = any(passed(tree, call, "ddp_find_unused_parameters") for call in training.arguments)
    is_left = not (is_text and program.options.applies("DDP202")) and not is_set
    holds = {
        "engine": bool(program.engines),
        "GRPO": is_grpo,
        "training": bool(training.events),
        "dense text": is_text,
        "vision": kind is ModelKind.VISION,
        "unused parameters": is_left and trains_lora(tree, program.loads),
    }
    return frozenset(name for name, is_one in holds.items() if is_one)


def floors(program: Program) -> list[tuple[str, str]]:
    """Return the oldest version of each package with which this script trains on several processes."""
    needed, own = dict[str, str](), kinds(program)
    for row in rows("floor"):
        if row["kind"] in own:
            package, minimum = row["package"], row["minimum"]
            needed[package] = max(needed.get(package, minimum), minimum, key=Version)
    return sorted(needed.items())
