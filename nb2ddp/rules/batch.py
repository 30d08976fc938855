"""DDP201: keep the notebook's global batch on any number of processes."""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from nb2ddp.edits import Edit, InsertBefore, SetKeyword
from nb2ddp.model import Severity
from nb2ddp.program import Finding, Program
from nb2ddp.rule import Example, Rule
from nb2ddp.tree import keyword

PER_DEVICE, ACCUMULATION = "per_device_train_batch_size", "gradient_accumulation_steps"
#: What a config that names neither field trains with: transformers' defaults (training_args.py) ...
_DEFAULTS = ("8", "1")
#: ... and those of TRL's configs once Unsloth has patched them (unsloth/models/rl.py, 2026.10.9).
_UNSLOTH_DEFAULTS = ("4", "2")
#: Configs whose step is counted in completions, several of one prompt (trl/trainer/grpo_config.py).
_COMPLETION_CONFIGS = ("GRPOConfig", "RLOOConfig")
_DEFAULT_GENERATIONS = "8"


def find(program: Program) -> Iterator[Finding]:
    tree = program.tree
    names = (program.name("per_device_batch"), program.name("accumulation"))
    for call in program.training.arguments:
        family = tree.family(call.func)
        passed = (keyword(call, PER_DEVICE), keyword(call, ACCUMULATION))
        if passed[0] is not None and _is_split(program, passed[0].value):
            continue
        if any(a.star == "**" for a in call.args) and None in passed:
            yield Finding(
                call,
                "the batch may come from **keywords, so it is not split: each process trains on a whole batch; "
                f"write {PER_DEVICE} and {ACCUMULATION} into the call",
                severity=Severity.WARNING,
                todo=True,
            )
            continue
        defaults = _UNSLOTH_DEFAULTS if family.startswith("trl.") else _DEFAULTS
        values = [tree.text(a.value) if a else default for a, default in zip(passed, defaults, strict=True)]
        generations = _generations(program, call, family)
        split = ", ".join([*values, *([generations] if generations else [])])
        comment = _comment(program, passed, defaults, "completions" if generations else "samples")
        edits: list[Edit] = [
            InsertBefore(
                tree.statement(call), f"{', '.join(names)} = {program.name('split_batch')}({split})  # {comment}"
            ),
            SetKeyword(call, PER_DEVICE, names[0]),
            SetKeyword(call, ACCUMULATION, names[1]),
        ]
        steps = keyword(call, "steps_per_generation")
        if steps is not None and tree.literal(steps.value) is not None:
            edits.append(SetKeyword(call, steps.keyword.value, f"{tree.text(steps.value)} * {names[1]} // {values[1]}"))  # type: ignore[union-attr]
        yield Finding(
            call,
            "the global batch would grow with the number of processes",
            edits=tuple(edits),
            needs=frozenset({"split_batch", "completions"} if generations else {"split_batch"}),
        )
        if family.endswith("KTOConfig"):
            yield Finding(
                call,
                "KTO compares the samples of one device with each other: use no more processes than leave 2"
                " samples each",
                severity=Severity.WARNING,
            )


def _generations(program: Program, call: cst.Call, family: str) -> str:
    """The completions of one prompt, where the step is counted in completions; else empty."""
    if not family.endswith(_COMPLETION_CONFIGS):
        return ""
    passed = keyword(call, "num_generations")
    return program.tree.text(passed.value) if passed is not None else _DEFAULT_GENERATIONS


def _comment(program: Program, passed: tuple[cst.Arg | None, ...], defaults: tuple[str, str], unit: str) -> str:
    numbers = [
        program.tree.literal(argument.value) if argument else int(default)
        for argument, default in zip(passed, defaults, strict=True)
    ]
    if unit == "samples" and all(isinstance(n, int) for n in numbers):
        return f"{numbers[0] * numbers[1]} samples a step, as in the notebook"  # type: ignore[operator]
    return f"as many {unit} a step as in the notebook"


def _is_split(program: Program, value: cst.BaseExpression) -> bool:
    """True for a name that `split_batch` has bound."""
    binding = program.tree.binding(value) if isinstance(value, cst.Name) else None
    if binding is None or not isinstance(binding.node, cst.Assign):
        return False
    made_by = binding.node.value
    return isinstance(made_by, cst.Call) and program.tree.text(made_by.func) == program.name("split_batch")


RULE = Rule(
    code="DDP201",
    name="batch-not-split",
    summary="The notebook's global batch (per device x accumulation) is split over the processes.",
    why="Under DDP every process takes a whole per-device batch, so two GPUs silently double the batch: a run of 30 "
    "steps ended at loss 5.588 instead of 5.904 on two H200s. The split is worked out when the script starts, from the "
    "number of processes there are. Where a step is counted in completions (GRPO), the split follows Unsloth's own"
    " rule and "
    "keeps whole groups of `num_generations`.",
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
per_device_batch, accumulation = split_batch(BATCH, 1)  # as many samples a step as in the notebook
args = TrainingArguments("out", per_device_train_batch_size=per_device_batch, gradient_accumulation_steps=accumulation)
""",
        ),
        Example(
            """\
from trl import GRPOConfig
training_args = GRPOConfig(
    per_device_train_batch_size = 1,
    gradient_accumulation_steps = 1, # Increase to 4 for smoother training
    num_generations = 4, # Decrease if out of memory
)
""",
            """\
from trl import GRPOConfig
per_device_batch, accumulation = split_batch(1, 1, 4)  # as many completions a step as in the notebook
training_args = GRPOConfig(
    per_device_train_batch_size = per_device_batch,
    gradient_accumulation_steps = accumulation, # Increase to 4 for smoother training
    num_generations = 4, # Decrease if out of memory
)
""",
        ),
        Example("from peft import LoraConfig\nconfig = LoraConfig(r = 16)\n"),
    ),
)
