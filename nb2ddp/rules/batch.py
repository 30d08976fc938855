"""DDP201: keep the notebook's global batch on any number of processes."""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from nb2ddp.edits import InsertBefore, SetKeyword
from nb2ddp.program import Finding, Program
from nb2ddp.rule import Example, Rule
from nb2ddp.tree import keyword

PER_DEVICE, ACCUMULATION = "per_device_train_batch_size", "gradient_accumulation_steps"
#: What a config that names neither field trains with: transformers' defaults (training_args.py) ...
_DEFAULTS = ("8", "1")
#: ... and those of TRL's configs once Unsloth has patched them (unsloth/models/rl.py, 2026.10.9).
_UNSLOTH_DEFAULTS = ("4", "2")


def find(program: Program) -> Iterator[Finding]:
    tree = program.tree
    names = (program.name("per_device_batch"), program.name("accumulation"))
    for call in program.training.arguments:
        patched = tree.family(call.func).startswith("trl.")
        passed = (keyword(call, PER_DEVICE), keyword(call, ACCUMULATION))
        values = [
            tree.text(argument.value) if argument else default
            for argument, default in zip(passed, _UNSLOTH_DEFAULTS if patched else _DEFAULTS, strict=True)
        ]
        if passed[0] is not None and _is_split(program, passed[0].value):
            continue
        if any(a.star == "**" for a in call.args) and None in passed:
            yield Finding(
                call,
                "the batch may come from **keywords, so it is not split: each process trains on a whole batch; "
                f"write {PER_DEVICE} and {ACCUMULATION} into the call",
                todo=True,
            )
            continue
        total = _product(program, passed)
        comment = f"  # {total} samples a step, as in the notebook" if total else "  # the notebook's global batch"
        yield Finding(
            call,
            "the global batch would grow with the number of processes",
            edits=(
                InsertBefore(
                    tree.statement(call),
                    f"{names[0]}, {names[1]} = {program.name('split_batch')}({values[0]}, {values[1]}){comment}",
                ),
                SetKeyword(call, PER_DEVICE, names[0]),
                SetKeyword(call, ACCUMULATION, names[1]),
            ),
            needs=frozenset({"split_batch"}),
        )


def _is_split(program: Program, value: cst.BaseExpression) -> bool:
    """True for a name that `split_batch` has bound."""
    binding = program.tree.binding(value) if isinstance(value, cst.Name) else None
    if binding is None or not isinstance(binding.node, cst.Assign):
        return False
    made_by = binding.node.value
    return isinstance(made_by, cst.Call) and program.tree.text(made_by.func) == program.name("split_batch")


def _product(program: Program, passed: tuple[cst.Arg | None, ...]) -> int | None:
    numbers = [program.tree.literal(argument.value) if argument else None for argument in passed]
    if all(isinstance(n, int) for n in numbers):
        return int(numbers[0]) * int(numbers[1])  # type: ignore[call-overload, no-any-return]
    return None


RULE = Rule(
    code="DDP201",
    name="batch-not-split",
    summary="The notebook's global batch (per device x accumulation) is split over the processes.",
    why="Under DDP every process takes a whole per-device batch, so two GPUs silently double the batch: a run of 30 "
    "steps ended at loss 5.588 instead of 5.904 on two H200s. The split is worked out when the script starts, from the "
    "number of processes there are.",
    find=find,
    examples=(
        Example(
            """\
from trl import SFTConfig, SFTTrainer
trainer = SFTTrainer(
    model = model,
    args = SFTConfig(
        per_device_train_batch_size = 2,
        gradient_accumulation_steps = 4, # Use GA to mimic batch size!
        max_steps = 60,
    ),
)
""",
            """\
from trl import SFTConfig, SFTTrainer
per_device_batch, accumulation = split_batch(2, 4)  # 8 samples a step, as in the notebook
trainer = SFTTrainer(
    model = model,
    args = SFTConfig(
        per_device_train_batch_size = per_device_batch,
        gradient_accumulation_steps = accumulation, # Use GA to mimic batch size!
        max_steps = 60,
    ),
)
""",
        ),
        Example(
            """\
from transformers import TrainingArguments
args = TrainingArguments("out", per_device_train_batch_size=BATCH)
""",
            """\
from transformers import TrainingArguments
per_device_batch, accumulation = split_batch(BATCH, 1)  # the notebook's global batch
args = TrainingArguments("out", per_device_train_batch_size=per_device_batch, gradient_accumulation_steps=accumulation)
""",
        ),
        Example("from peft import LoraConfig\nconfig = LoraConfig(r = 16)\n"),
    ),
)
