"""Which versions of Unsloth a notebook's script needs on several processes: the guards of its setup block, as data.

Only what can go wrong in a converted script is here. Releases that load 16-bit and 4-bit models onto the wrong GPU
(Unsloth issues 3459 and 3914) are not: the script passes `device_map = local_rank`, which every release follows.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from nb2ddp.facts.checkpoints import keeps_engine
from nb2ddp.facts.loading import ModelKind, has_lora
from nb2ddp.facts.program import Program
from nb2ddp.facts.training import TOKEN_TRAINERS
from nb2ddp.syntax.arguments import passed


@dataclass(frozen=True)
class Guard:
    """A version that a kind of notebook needs.

    Attributes:
        concerns: true for a notebook that needs it.
        package: the distribution, as pip names it.
        minimum: the first version without the problem.
        problem: what goes wrong below it, as the end of a sentence; short enough for one line of the script.
        stops: end the script at its start: training would be wrong without a word, or would hang.
        source: where the fact is from.
    """

    concerns: Callable[[Program], bool]
    package: str
    minimum: str
    problem: str
    stops: bool
    source: str


def _is_grpo(program: Program) -> bool:
    training = program.training
    calls = [*training.arguments, *training.trainers]
    return any(program.tree.family(call.func).endswith(("GRPOConfig", "GRPOTrainer")) for call in calls)


def _is_grpo_with_engine(program: Program) -> bool:
    return _is_grpo(program) and keeps_engine(program)


def _has_fused_loss(program: Program) -> bool:
    """True where Unsloth computes the mean over tokens itself: any trainer but those with a loss of their own."""
    is_text = program.model_kind is not ModelKind.ENCODER
    return is_text and program.training.has_trainer(*TOKEN_TRAINERS)


def tries_kernels(program: Program) -> bool:
    """True where Unsloth packs rows, and so may try an attention kernel out while it compiles a checkpointed block.

    The trial has a backward pass. Under DDP, where checkpointing is without re-entry, that pass unpacks tensors with
    the block's hooks, so it runs the block again, in another thread, which waits for the lock on compilation that the
    first one holds. Seen with full fine-tuning and with a mixture of experts, on Unsloth 2026.10.9 and torch 2.11
    (docs/performance.md); `_varlen_in_graph_probe` in unsloth/utils/hf_packed_attention.py: not in the wheel 2026.10.8.
    """
    return program.training.has_trainer("SFTTrainer", "UnslothTrainer")


def _feels_gradient_scale(program: Program) -> bool:
    """True for an optimizer whose steps grow with the gradients, as those of the Adam family do not."""
    given = [passed(program.tree, call, "optim") for call in program.training.arguments]
    names = [program.tree.literal(g.value) for g in given if g is not None]
    return any(isinstance(name, str) and name.lower().startswith(("sgd", "rmsprop", "adagrad")) for name in names)


def _scales_fused_loss(program: Program) -> bool:
    return _has_fused_loss(program) and _feels_gradient_scale(program)


def _is_dense_text(program: Program) -> bool:
    return program.model_kind is ModelKind.DENSE_TEXT


def _is_vision(program: Program) -> bool:
    return program.model_kind is ModelKind.VISION


def _searches_unused(program: Program) -> bool:
    """True for adapters of which nothing says whether each gets a gradient in every step (rule DDP202)."""
    left = program.model_kind is ModelKind.UNKNOWN or (
        _is_dense_text(program) and not program.options.applies("DDP202")
    )
    field = "ddp_find_unused_parameters"
    is_set = any(passed(program.tree, call, field) for call in program.training.arguments)
    return left and has_lora(program.tree) and not is_set


def _is_any(program: Program) -> bool:
    return bool(program.training.events)


#: Those that stop the script first: where one does, the others need not be said.
GUARDS: tuple[Guard, ...] = (
    Guard(
        _is_grpo_with_engine,
        "unsloth_zoo",
        "2026.10.9",
        "the vLLM engines of the processes wait for each other for ever",
        True,
        "Unsloth issues 4559, 1880 and 2435; unsloth_zoo/vllm_utils.py in the wheels 2026.10.7 and 2026.10.9",
    ),
    Guard(
        _is_grpo,
        "unsloth",
        "2026.9.14",
        "gradients of GRPO are not averaged, so each process trains another model",
        True,
        "_wrap_grpo_ddp_gradient_sync in unsloth/models/rl.py: in the wheel 2026.9.14, not in 2026.9.12",
    ),
    Guard(
        _scales_fused_loss,
        "unsloth_zoo",
        "2026.5.1",
        "gradients, so this optimizer's steps, are divided by the processes' number",
        True,
        "unsloth_zoo pull request 434; in the wheel 2026.5.1, not in 2026.4.9",
    ),
    Guard(
        _has_fused_loss,
        "unsloth_zoo",
        "2026.5.1",
        "gradients (grad_norm, max_grad_norm) are divided by the processes' number",
        False,
        "unsloth_zoo pull request 434; in the wheel 2026.5.1, not in 2026.4.9",
    ),
    Guard(
        _is_any,
        "unsloth_zoo",
        "2026.9.9",
        "the processes may wait for each other for ever at the start",
        False,
        "unsloth_zoo pull requests 379 and 967; in the wheel 2026.9.9, not in 2026.8.17",
    ),
    Guard(
        _is_dense_text,
        "unsloth",
        "2026.7.1",
        "training may fail: 'No backend type associated with device type cpu'",
        False,
        "Unsloth issues 2553, 2074 and 5532, pull request 6662 (after 2026.6.9)",
    ),
    Guard(
        _is_vision,
        "unsloth",
        "2025.12.7",
        "training may fail: 'Expected to mark a variable ready only once'",
        False,
        "Unsloth issues 3713 and 4485, pull request 3751",
    ),
    Guard(
        _searches_unused,
        "unsloth",
        "2026.10.6",
        "training may fail: 'Expected to mark a variable ready only once'",
        False,
        "unsloth/models/_ddp_defaults.py: in the wheel 2026.10.6, not in 2026.10.3",
    ),
)

#: Below it the per-device batch is 1: larger ones crash with "Output 0 of UnslothFusedLossBackward is a view".
LARGER_BATCH = Guard(
    _is_any,
    "unsloth",
    "2025.10.5",
    "per-device batches above 1 crash",
    False,
    "Unsloth issue 3452, pull request 3473",
)


def guards(program: Program) -> list[Guard]:
    """What this notebook needs, each fact once."""
    found: list[Guard] = []
    for guard in GUARDS:
        same = any(g.package == guard.package and g.minimum == guard.minimum for g in found)
        if guard.concerns(program) and not same:
            found.append(guard)
    return found
