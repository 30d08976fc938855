"""The trainings of a notebook, with the values that their memory depends on."""

from __future__ import annotations

import math
import re
import sys
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import libcst as cst

from nb2ddp.facts.loading import model_name, trains_lora, trains_whole
from nb2ddp.facts.program import Program
from nb2ddp.facts.releases import uses_unsloth
from nb2ddp.facts.values import number
from nb2ddp.rules import batch
from nb2ddp.rules.devices import trains_embeddings
from nb2ddp.rules.trainer import asks_for_checkpointing, checkpointing_for_a_smaller_gpu
from nb2ddp.script.linker import link
from nb2ddp.syntax.arguments import constant, passed
from nb2ddp.syntax.tree import Tree

#: Rows of a trainer's data set that pass through the model at once: a preferred and a rejected answer, or two texts.
_PAIRS = re.compile(r"(DPO|ORPO|CPO|KTO|SimPO|Reward|SentenceTransformer)\w*Trainer")
_COMPLETIONS = re.compile(r"(GRPO|RLOO)\w*Trainer")
#: Functions of a script that divide the batch among the processes (nb2ddp/runtime).
_SPLITS = re.compile(r"split_(batch|completions)")
_TOKENS = 2048  # tokens of a row, if a notebook sets no limit: Unsloth's `max_seq_length`
_RANK = 16  # rank of adapters, if it is not written out


@dataclass(frozen=True)
class Training:
    """One training of a notebook.

    Attributes:
        trainer: the trainer's class; "" if unknown.
        model: the model's name, as the notebook writes it.
        precision: "4bit", "8bit", "16bit", "32bit" or "full" (16-bit weights that are all trained).
        rank: the rank of the LoRA adapters; 0 if all weights are trained.
        trains_embeddings: adapters come with trained embeddings and a trained head.
        per_device: the notebook's per-device batch, in rows or completions; 0 if unknown.
        split: the script's call that divides a step among its processes, with numbers only; empty if all of them
            share it as one batch.
        tokens: the length of the longest row that the notebook allows; 0 if unknown.
        rows_of_one: how many texts pass through the model for a row.
        can_skip: gradient checkpointing is turned off if memory allows (DDP209).
        checkpoints: the notebook asks for gradient checkpointing, or leaves Unsloth's default.
        engine: the share of the GPU that a vLLM engine of this process takes; 0 for none.
    """

    trainer: str
    model: str
    precision: str
    rank: int
    trains_embeddings: bool
    per_device: int
    split: str
    tokens: int
    rows_of_one: int
    can_skip: bool
    checkpoints: bool
    engine: float

    @property
    def samples(self) -> int:
        """The global batch: samples (or completions) of a step."""
        return math.prod(self.divided(1, 0)) if self.split else self.per_device

    def divided(self, processes: int, memory: float) -> tuple[int, int]:
        """Return the per-device batch and accumulation steps on GPUs with `memory` bytes, as the script does."""
        if self.split:
            names = _functions(self.split.partition("(")[0])
            names |= {"world_size": processes, "smallest_gpu": lambda _: memory}  # read by its functions
            rows, pieces = eval(self.split, names)
            return int(rows), int(pieces)
        return math.ceil(self.per_device / processes), 1

    def accumulating(self, steps: int) -> Training:
        """Return the training with another number of accumulation steps, or with that many times the shared batch."""
        if self.split:
            return replace(self, split=re.sub(r"\((.*?), [^,)]*", rf"(\1, {steps}", self.split, count=1))
        return replace(self, per_device=self.per_device * steps)

    @property
    def unit(self) -> str:
        """What a step counts: samples or completions."""
        return "completions" if _COMPLETIONS.fullmatch(self.trainer) else "samples"


@cache
def _functions(name: str) -> dict[str, Any]:
    """Return the names for the call that divides a step, from the text of its functions: their module imports torch."""
    names: dict[str, Any] = {"math": math, "sys": sys, "is_main_process": False}
    names["print"] = lambda *_, **__: None
    for text in link([f"{name}()"]).functions:
        exec(text, names)
    return names


def trainings(program: Program) -> list[Training]:
    """Return the trainings of a notebook in order, without duplicates."""
    found = [_training(program, at, call) for at, call in enumerate(program.training.arguments)]
    return list(dict.fromkeys(found))


def _training(program: Program, at: int, config: cst.Call) -> Training:
    tree = program.tree
    classes = program.training.trainer_classes
    trainer = classes[min(at, len(classes) - 1)] if classes else ""
    load = _last_before(program, config, program.loads)  # the load of its model
    precision = _precision(program, load)
    completions = bool(_COMPLETIONS.fullmatch(trainer))
    split = _split(program, at, config)
    adapters = _adapters(program, config)
    with_engine = load is not None and constant(tree, load, "fast_inference") is True
    return Training(
        trainer=trainer,
        model=next(iter(model_name(tree, load).split()), "") if load else "",
        precision=precision,
        rank=0 if precision == "full" else int(_number(tree, adapters, "r") or _RANK),
        trains_embeddings=adapters is not None and trains_embeddings(tree, adapters),
        per_device=_per_device(program, config, split),
        split=split or "",
        tokens=_tokens(program, at, load, completions),
        rows_of_one=2 if _PAIRS.fullmatch(trainer) else 1,
        can_skip="skip_checkpointing_if_it_fits(" in tree.source or any(checkpointing_for_a_smaller_gpu.find(program)),
        checkpoints=_checkpoints(program),
        engine=(_number(tree, load, "gpu_memory_utilization") or 0.5) if with_engine else 0.0,
    )


def _last_before(program: Program, config: cst.Call, calls: list[cst.Call]) -> cst.Call | None:
    """Return the last of some calls that is before a training's arguments; the last of all if none is."""
    start = program.tree.start(config)
    return next(reversed([call for call in calls if program.tree.start(call) < start] or calls), None)


def _precision(program: Program, load: cst.Call | None) -> str:
    tree = program.tree
    if load is None:
        return "16bit"
    if trains_whole(tree, [load]) or not trains_lora(tree, [load]):
        return "full"
    if constant(tree, load, "load_in_8bit") is True:
        return "8bit"
    in_4bit = constant(tree, load, "load_in_4bit")
    by_unsloth = tree.qualified(load.func).startswith("unsloth.") and "SentenceTransformer" not in tree.text(load.func)
    quantized = passed(tree, load, "quantization_config") is not None or "4bit" in model_name(tree, load)
    if in_4bit is True or (in_4bit is None and (quantized or (by_unsloth and uses_unsloth(tree)))):
        return "4bit"
    types = [given for name in ("dtype", "torch_dtype") if (given := passed(tree, load, name)) is not None]
    return "32bit" if any("float32" in tree.text(tree.value(each.value)) for each in types) else "16bit"


def _split(program: Program, at: int, config: cst.Call) -> str | None:
    """Return the call that divides a step, in a converted script or in the script that a notebook will become.

    It has numbers only; None if one of them is unknown.
    """
    tree = program.tree
    calls = [call for call in tree.live(cst.Call) if _SPLITS.fullmatch(tree.text(call.func))]
    if not calls:
        return batch.split_of(program, config)
    call = calls[min(at, len(calls) - 1)]
    given = [(argument.keyword, number(tree, argument.value)) for argument in call.args]
    words = [f"{name.value} = {value}" if name else str(value) for name, value in given]
    return f"{tree.text(call.func)}({', '.join(words)})" if all((value or 0) > 0 for _, value in given) else None


def _per_device(program: Program, config: cst.Call, split: str | None) -> int:
    """Return the notebook's per-device batch, which is the first number of a split."""
    if split is None:
        return 0
    if split:
        return int(re.findall(r"\d+", split)[0])
    shared = next(
        (call for call in program.tree.live(cst.Call) if program.tree.text(call.func) == "share_batches"), None
    )
    if shared is not None:
        return int(number(program.tree, shared.args[0].value) or 0)
    given = _number(program.tree, config, batch.PER_DEVICE)
    return 8 if given is None else int(given)  # transformers' default


def _tokens(program: Program, at: int, load: cst.Call | None, completions: bool) -> int:
    tree, config, trainers = program.tree, program.training.arguments[at], program.training.trainers
    if completions:
        parts = [_number(tree, config, name) for name in ("max_prompt_length", "max_completion_length")]
        if all(parts):
            return int(sum(part or 0 for part in parts))
    limits = [_number(tree, config, name) for name in ("max_length", "max_seq_length")]
    limits += [_number(tree, load, "max_seq_length")] if load is not None else []
    is_paired = len(trainers) == len(program.training.arguments)
    limits += [_number(tree, call, "max_seq_length") for call in (trainers[at : at + 1] if is_paired else trainers)]
    given = [limit for limit in limits if limit is not None]
    return int(min(filter(None, given), default=0)) if given else _TOKENS


def _adapters(program: Program, config: cst.Call) -> cst.Call | None:
    """Return the call that makes or configures the adapters of a training."""
    tree, names = program.tree, ("get_peft_model", "LoraConfig")
    made = [call for call in tree.live(cst.Call) if tree.qualified(call.func).rsplit(".", 1)[-1] in names]
    ranked = [call for call in made if passed(tree, call, "r") is not None]  # not `get_peft_model(model, config)`
    return _last_before(program, config, ranked or made)


def _checkpoints(program: Program) -> bool:
    tree = program.tree
    if tree.given("use_gradient_checkpointing") or uses_unsloth(tree):
        return asks_for_checkpointing(tree)
    return any(tree.literal(each) is not False for each in tree.given("gradient_checkpointing"))


def _number(tree: Tree, call: cst.Call | None, name: str) -> float | None:
    """Return the positive number that a call is passed; 0 if it is unknown, None if none is passed."""
    given = passed(tree, call, name) if call is not None else None
    if given is None or tree.literal(given.value) is None:
        return None
    found = number(tree, given.value)
    return 0 if found is None else found if found > 0 else None
