"""What a notebook trains, as far as its memory depends on it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import libcst as cst

from nb2ddp.facts.environment import uses_unsloth
from nb2ddp.facts.loading import model_name, trains_lora, trains_whole
from nb2ddp.facts.program import Program
from nb2ddp.rules import checkpointing
from nb2ddp.syntax.arguments import constant, passed
from nb2ddp.syntax.tree import method

#: Rows of a trainer's data set that pass through the model at once: a preferred and a rejected answer, or two texts.
_PAIRS = re.compile(r"(DPO|ORPO|CPO|KTO|SimPO|Reward|SentenceTransformer)\w*Trainer")
_COMPLETIONS = re.compile(r"(GRPO|RLOO)\w*Trainer")
#: Functions of a script that divide the batch among the processes (nb2ddp/runtime).
_SPLITS = re.compile(r"split_(batch|completions|by_size)\w*")
_TOKENS = 2048  # of a row, where a notebook sets no limit: Unsloth's `max_seq_length`
_RANK = 16  # of adapters, where it is not written out


@dataclass(frozen=True)
class Training:
    """One training of a notebook.

    Attributes:
        trainer: the trainer's class, "" where none is seen.
        model: the model's name, as the notebook writes it.
        precision: "4bit", "8bit", "16bit", "32bit" or "full" (16-bit weights that are all trained).
        rank: of the LoRA adapters; 0 where all weights are trained.
        trains_embeddings: adapters come with trained embeddings and a trained head.
        per_device: rows, or completions, at a time.
        accumulation: micro-batches of a step.
        tokens: the longest row that the notebook lets through.
        rows_of_one: how many texts pass through the model for a row.
        can_skip: gradient checkpointing is switched off where memory allows (DDP209).
        checkpoints: the notebook asks for gradient checkpointing, or leaves Unsloth's default.
        engine: the share of the GPU that a vLLM engine of this process takes; 0 for none.
        gpu_memory: of the GPU that the notebook was made for, in bytes; 0 where its batch does not grow.
    """

    trainer: str
    model: str
    precision: str
    rank: int
    trains_embeddings: bool
    per_device: int
    accumulation: int
    tokens: int
    rows_of_one: int
    can_skip: bool
    checkpoints: bool
    engine: float
    gpu_memory: float

    @property
    def samples(self) -> int:
        """Samples, or completions, of a step: the global batch."""
        return self.per_device * self.accumulation

    @property
    def can_split(self) -> bool:
        """False where the rows of a batch are each other's negatives, so that they stay together."""
        return self.trainer != "SentenceTransformerTrainer"

    @property
    def unit(self) -> str:
        """What a step counts."""
        return "completions" if _COMPLETIONS.fullmatch(self.trainer) else "samples"


def trainings(program: Program) -> list[Training]:
    """Every training of a notebook, in order; those that differ in nothing once."""
    found = [_training(program, at, call) for at, call in enumerate(program.training.arguments)]
    return list(dict.fromkeys(found))


def _training(program: Program, at: int, config: cst.Call) -> Training:
    tree = program.tree
    classes = program.training.trainer_classes
    trainer = classes[min(at, len(classes) - 1)] if classes else ""
    load = _load(program, at)
    precision = _precision(program, load)
    completions = bool(_COMPLETIONS.fullmatch(trainer))
    per_device, accumulation = _batch(program, at, config)
    generations = int(_number(tree, config, "num_generations") or 8)
    if completions and per_device * accumulation % generations:
        per_device = generations
    adapters = next(iter(_adapters(program)), None)
    with_engine = constant(tree, load, "fast_inference") is True if load else False
    share = constant(tree, load, "gpu_memory_utilization") if load else None
    grows = not completions and precision != "" and program.options.per_device_batch_size is None
    return Training(
        trainer=trainer,
        model=next(iter(model_name(tree, load).split()), "") if load else "",
        precision=precision,
        rank=0 if precision == "full" else int(_number(tree, adapters, "r") or _RANK),
        trains_embeddings=adapters is not None and bool(re.search(r"lm_head|embed_tokens", tree.text(adapters))),
        per_device=per_device,
        accumulation=accumulation,
        tokens=_tokens(program, load, config, completions),
        rows_of_one=2 if _PAIRS.fullmatch(trainer) else 1,
        can_skip="skip_checkpointing_if_it_fits(" in tree.source or any(True for _ in checkpointing.find(program)),
        checkpoints=_checkpoints(program),
        engine=float(share) if with_engine and isinstance(share, (int, float)) else 0.5 if with_engine else 0.0,
        gpu_memory=_gpu_memory(program) if grows else 0.0,
    )


def _gpu_memory(program: Program) -> float:
    """Of the GPU that the batch was chosen for, or that a converted script names; 0 where none is known."""
    for call in program.tree.live(cst.Call):
        if program.tree.text(call.func) == "split_batch":
            return _number(program.tree, call, "gpu_memory") or 15e9  # its default (nb2ddp/runtime/batch.py)
    return program.gpu.gigabytes * 1e9 if program.gpu else 0.0


def _load(program: Program, at: int) -> cst.Call | None:
    """The load of the model that a training takes: the one before it of those that train."""
    loads = program.loads
    start = program.tree.start(program.training.arguments[at])
    before = [load for load in loads if program.tree.start(load) < start]
    found = before or loads
    return found[-1] if found else None


def _precision(program: Program, load: cst.Call | None) -> str:
    tree = program.tree
    if load is None:
        return "16bit"
    if trains_whole(tree, [load]) or not trains_lora(tree, [load]):
        return "full"
    if constant(tree, load, "load_in_8bit") is True:
        return "8bit"
    told = constant(tree, load, "load_in_4bit")
    by_unsloth = tree.qualified(load.func).startswith("unsloth.") and "SentenceTransformer" not in tree.text(load.func)
    quantized = passed(tree, load, "quantization_config") is not None or "4bit" in model_name(tree, load)
    if told is True or (told is None and (quantized or (by_unsloth and uses_unsloth(tree)))):
        return "4bit"
    types = [given for name in ("dtype", "torch_dtype") if (given := passed(tree, load, name)) is not None]
    return "32bit" if any("float32" in tree.text(tree.value(each.value)) for each in types) else "16bit"


def _batch(program: Program, at: int, config: cst.Call) -> tuple[int, int]:
    """The batch of a config; of a converted script, what its split is given."""
    tree = program.tree
    splits = [call for call in tree.live(cst.Call) if _SPLITS.fullmatch(tree.text(call.func))]
    if splits:
        call = splits[min(at, len(splits) - 1)]
        skipped = 1 if tree.text(call.func) == "split_by_size" else 0
        given = [tree.literal(argument.value) for argument in call.args[skipped : skipped + 2]]
        if len(given) == 2 and all(isinstance(value, int) and value > 0 for value in given):
            return given[0], given[1]  # type: ignore[return-value]
    default = (4, 2) if tree.family(config.func).startswith("trl.") else (8, 1)  # of Unsloth's trainers; transformers'
    sizes = (
        _number(tree, config, "per_device_train_batch_size") or default[0],
        _number(tree, config, "gradient_accumulation_steps") or default[1],
    )
    return int(sizes[0]), int(sizes[1])


def _tokens(program: Program, load: cst.Call | None, config: cst.Call, completions: bool) -> int:
    tree = program.tree
    if completions:
        parts = [_number(tree, config, name) for name in ("max_prompt_length", "max_completion_length")]
        if all(parts):
            return int(sum(part or 0 for part in parts))
    limits = [_number(tree, config, name) for name in ("max_length", "max_seq_length")]
    limits += [_number(tree, load, "max_seq_length")] if load is not None else []
    limits += [_number(tree, call, "max_seq_length") for call in program.training.trainers]
    given = [limit for limit in limits if limit]
    return int(min(given)) if given else _TOKENS


def _adapters(program: Program) -> Iterator[cst.Call]:
    for call in program.tree.live(cst.Call):
        name = program.tree.qualified(call.func).rsplit(".", 1)[-1]
        if method(call) == "get_peft_model" or name in ("get_peft_model", "LoraConfig"):
            yield call


def _checkpoints(program: Program) -> bool:
    given = [program.tree.literal(each) for each in program.tree.given("use_gradient_checkpointing")]
    if not given and not uses_unsloth(program.tree):
        given = [program.tree.literal(each) for each in program.tree.given("gradient_checkpointing")] or [False]
    return not given or any(value is not False for value in given)


def _number(tree: Any, call: cst.Call | None, name: str) -> float | None:
    value = constant(tree, call, name) if call is not None else None
    return value if isinstance(value, (int, float)) and not isinstance(value, bool) and value > 0 else None
