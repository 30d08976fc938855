"""Which versions of Unsloth a notebook's script needs on several processes: the guards of its setup block, as data.

Only what can go wrong in a converted script is here. Releases that load 16-bit and 4-bit models onto the wrong GPU
(Unsloth issues 3459 and 3914) are not: the script passes `device_map = local_rank`, which every release follows.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import libcst as cst
from packaging.version import Version

from nb2ddp.facts.loading import ModelKind, has_lora, is_general, model_name, trained_loads, trains_lora, trains_whole
from nb2ddp.facts.program import Program
from nb2ddp.syntax.arguments import passed
from nb2ddp.syntax.tree import argument


@dataclass(frozen=True)
class Guard:
    """The lowest version of a package that a kind of notebook needs.

    Attributes:
        concerns: returns True for a notebook that needs it.
        package: the distribution, as pip names it.
        minimum: the first version without the problem.
    """

    concerns: Callable[[Program], bool]
    package: str
    minimum: str


def _is_grpo(program: Program) -> bool:
    """True for GRPO, and for a trainer of another module, which may be one of GRPO's."""
    training = program.training
    calls = [*training.arguments, *training.trainers]
    return not calls or any(program.tree.family(call.func).endswith(("GRPOConfig", "GRPOTrainer")) for call in calls)


def tries_kernels(program: Program) -> bool:
    """True where Unsloth packs rows and trying an attention kernel out, while it compiles a block, hangs under DDP.

    The trial has a backward pass. Under DDP, where checkpointing is without re-entry, that pass unpacks tensors with
    the block's hooks, so it runs the block again, in another thread, which waits for the lock on compilation that the
    first one holds. Seen with full fine-tuning, a mixture of experts, and LoRA on phi-2 and SmolLM3; not with LoRA on
    the dense models that have classes of Unsloth's own (Unsloth 2026.10.9, torch 2.11;
    benchmarks/results/kernel-trial.json); `_varlen_in_graph_probe` in unsloth/utils/hf_packed_attention.py: not in the
    wheel 2026.10.8.
    """
    tree, training = program.tree, program.training
    trains_all = not has_lora(tree) or trains_whole(tree, program.loads)
    loads = trained_loads(tree, training.trainers, program.loads) or program.loads
    is_other = program.model_kind is not ModelKind.DENSE_TEXT or any(is_general(tree, load) for load in loads)
    never_packs = any("gpt-oss" in model_name(tree, load) for load in loads)  # PADDING_FREE_BLOCKLIST of trainer.py
    packs = any(map(_may_pack, training.trainers, training.trainer_classes)) and not never_packs
    return packs and (trains_all or is_other)


def _may_pack(trainer: cst.Call, name: str) -> bool:
    """True for a trainer whose rows Unsloth may pack: with a collator of the notebook's own it pads them.

    `blocked` in `_patch_sft_trainer_auto_packing` (unsloth/trainer.py, 2026.10.9).
    """
    collator = argument(trainer, "data_collator", 2)
    has_collator = collator is not None and not (
        isinstance(collator.value, cst.Name) and collator.value.value == "None"
    )
    return name.endswith(("SFTTrainer", "UnslothTrainer")) and not has_collator


def _is_dense_text(program: Program) -> bool:
    return program.model_kind is ModelKind.DENSE_TEXT


def _searches_unused(program: Program) -> bool:
    """True for adapters where Unsloth is left to say whether each gets a gradient in every step (rule DDP202)."""
    left = not _is_dense_text(program) or not program.options.applies("DDP202")
    field = "ddp_find_unused_parameters"
    is_set = any(passed(program.tree, call, field) for call in program.training.arguments)
    return left and trains_lora(program.tree, program.loads) and not is_set


def _trains(program: Program) -> bool:
    return bool(program.training.events)


#: Each below what goes wrong in older versions, and where that is from. A row that is always below another one of its
#: package is left out.
GUARDS: tuple[Guard, ...] = (
    # The vLLM engines of the processes wait for each other for ever (Unsloth issues 4559, 1880 and 2435;
    # unsloth_zoo/vllm_utils.py in the wheels 2026.10.7 and 2026.10.9).
    Guard(lambda program: bool(program.engines), "unsloth_zoo", "2026.10.9"),
    # Gradients of GRPO are not averaged, so each process trains another model (_wrap_grpo_ddp_gradient_sync in
    # unsloth/models/rl.py, in the wheel 2026.9.14, not in 2026.9.12).
    Guard(_is_grpo, "unsloth", "2026.9.14"),
    # The processes may wait for each other for ever at the start (unsloth_zoo pull requests 379 and 967; in the wheel
    # 2026.9.9, not in 2026.8.17).
    Guard(_trains, "unsloth_zoo", "2026.9.9"),
    # Per-device batches above 1 crash (Unsloth issue 3452, pull request 3473).
    Guard(_trains, "unsloth", "2025.10.5"),
    # Training may fail with 'No backend type associated with device type cpu' (Unsloth issues 2553, 2074 and 5532, pull
    # request 6662, after 2026.6.9).
    Guard(_is_dense_text, "unsloth", "2026.7.1"),
    # Training may fail with 'Expected to mark a variable ready only once' (Unsloth issues 3713 and 4485, pull request
    # 3751).
    Guard(lambda program: program.model_kind is ModelKind.VISION, "unsloth", "2025.12.7"),
    # Training may fail with 'Expected to mark a variable ready only once' (unsloth/models/_ddp_defaults.py, in the
    # wheel 2026.10.6, not in 2026.10.3).
    Guard(_searches_unused, "unsloth", "2026.10.6"),
)


def floors(program: Program) -> list[tuple[str, str]]:
    """Return the oldest version of each package with which this script trains on several processes."""
    needed: dict[str, str] = {}
    for guard in GUARDS:
        if guard.concerns(program):
            needed[guard.package] = max(needed.get(guard.package, guard.minimum), guard.minimum, key=Version)
    return sorted(needed.items())
