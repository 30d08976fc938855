"""Find the GPUs that fit a training, its batch on each, and how many GPUs its steps keep busy."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from nb2ddp.estimate.gpus import SIZES, Gpu
from nb2ddp.estimate.memory import CONTEXT, need
from nb2ddp.estimate.models import Shape

if TYPE_CHECKING:
    from nb2ddp.estimate.trainings import Training

#: Tokens that a process takes in a step to keep an H100 or H200 busy: with fewer a second GPU gained little in every
#: measured run, with more two were 1.7 to 2.1 times as fast as one (docs/performance.md).
BUSY = 6000
#: Families (`model_type`) whose memory was measured with SFT: in 51 runs the estimate was never too low, at most 1.49
#: times too high (docs/setup-block.md#gradient-checkpointing).
MEASURED_MODELS = ("llama", "mistral", "qwen2", "qwen3")
#: Families of which other kinds of training were measured.
_OTHERS = ("qwen2_vl", "bert")
#: The longest step that was measured to train slower on two GPUs: 8 rows of 450 tokens. Two were 0.6 to 0.9 times as
#: fast as one (docs/performance.md).
_SLOW = 3600
#: The smallest share of a GPU that a vLLM engine needs for keys and values; Unsloth shares the weights with it.
_KEYS = 0.1


@dataclass(frozen=True)
class Fit:
    """A training on one kind of GPU.

    Attributes:
        rows: the per-device batch.
        pieces: accumulation steps of each process.
        peak: bytes that torch allocates on each GPU.
        needs_option: it fits only with `--batch 1`.
    """

    gpu: Gpu
    fits: bool
    rows: int
    pieces: int
    checkpointing: bool
    peak: float
    needs_option: bool = False


@dataclass(frozen=True)
class Answer:
    """The estimate of one training."""

    training: Training
    shape: Shape
    processes: int
    fits: tuple[Fit, ...]

    @property
    def is_measured(self) -> bool:
        """True if trainings of this kind were measured on a GPU."""
        dense = self.shape.family in (*MEASURED_MODELS, *_OTHERS) and not self.shape.num_experts
        return dense and not self.training.engine and not self.training.trains_embeddings

    @property
    def busy(self) -> int:
        """How many GPUs a step of the longest rows keeps busy, each with the same number of samples."""
        samples = self.training.samples
        most = samples * _tokens(self.training) // BUSY
        return max(n for n in range(1, samples + 1) if n == 1 or (n <= most and samples % n == 0))


def answer(training: Training, shape: Shape, gpus: Sequence[Gpu], processes: int) -> Answer:
    """Estimate a training on each kind of GPU.

    Args:
        training: the training.
        shape: the model's sizes.
        gpus: the kinds of GPUs.
        processes: GPUs of the job, all of one kind.
    """
    return Answer(training, shape, processes, tuple(_fit(training, shape, gpu, processes) for gpu in gpus))


def _fit(training: Training, shape: Shape, gpu: Gpu, processes: int) -> Fit:
    rows, pieces = training.divided(processes, gpu.memory)
    room = gpu.memory * (1 - (_KEYS if training.engine else 0)) - CONTEXT
    if training.can_skip and shape.family in (*MEASURED_MODELS, ""):
        whole = need(training, shape, checkpointing=False, processes=processes)
        free = gpu.memory - CONTEXT - whole.weights
        if rows * whole.row + whole.training < 0.85 * free:  # as skip_checkpointing_if_it_fits decides
            return Fit(gpu, True, rows, pieces, False, whole.peak(rows))
    needed = need(training, shape, checkpointing=training.checkpoints, processes=processes)
    if needed.peak(rows) > room and training.split and needed.peak(1) <= room:
        return Fit(gpu, True, 1, rows * pieces, training.checkpoints, needed.peak(1), needs_option=True)
    peak = max(needed.peak(rows), training.engine * gpu.memory)
    return Fit(gpu, needed.peak(rows) <= room, rows, pieces, training.checkpoints, peak)


def in_short(answers: Sequence[Answer]) -> str:
    """Return one line on all trainings: `fits 24 GB; 8 samples of up to 2,048 tokens a step keep 2 GPUs busy`.

    Empty if nothing is known. For several trainings, the line only describes the smallest step.
    """
    if not answers:
        return ""
    gpus = [Gpu(f"{size} GB", memory) for size, memory in SIZES.items()]
    found = [(gpu.name, [_fit(a.training, a.shape, gpu, a.processes) for a in answers]) for gpu in gpus]
    fitting = [(name, any(fit.needs_option for fit in fits)) for name, fits in found if all(fit.fits for fit in fits)]
    smallest = fitting[0][0] if fitting else ""
    as_it_is = next((name for name, needs_option in fitting if not needs_option), "")
    least = gain(min(answers, key=lambda estimate: estimate.busy))
    least += f", the least of {len(answers)} trainings" if len({*map(gain, answers)}) > 1 else ""
    if smallest != as_it_is:
        fits = f"fits {smallest} with --batch 1{f', {as_it_is} without' if as_it_is else ''}"
    else:
        fits = f"fits {smallest}" if smallest else f"does not fit {max(SIZES)} GB"
    return f"{fits}; {least}"


def gain(estimate: Answer) -> str:
    """Return whether a step keeps the GPUs of a job busy, in words; if not, also which accumulation would."""
    training, gpus = estimate.training, max(2, estimate.processes)
    if _is_busy(training, gpus):
        return f"{counted(estimate)} keep {gpus} GPUs busy"
    steps = 1
    while not _is_busy(larger := training.accumulating(steps), gpus):
        steps += 1
    setting = f"gradient_accumulation_steps = {steps}"
    if not training.split:
        setting = f"per_device_train_batch_size = {larger.per_device}"
    problem = f"{gpus} GPUs need more than {counted(estimate)}"
    if (taken := _taken(training, gpus)) != training.samples:
        problem = f"{gpus} GPUs take {taken} instead of {counted(estimate)}"
    elif training.samples * _tokens(training) <= _SLOW:
        problem += " (two were 0.6 to 0.9 times as fast as one)"
    return f"{problem}: {setting} makes {larger.samples}"


def _is_busy(training: Training, gpus: int) -> bool:
    """True if GPUs share the samples of a step equally, and each has enough tokens."""
    taken = _taken(training, gpus)
    return taken == training.samples and taken * _tokens(training) >= gpus * BUSY


def _taken(training: Training, gpus: int) -> int:
    """Return the samples that GPUs take together in a step."""
    return gpus * math.prod(training.divided(gpus, SIZES[80]))


def _tokens(training: Training) -> int:
    """Return the tokens of the longest row."""
    return training.tokens * training.rows_of_one


def counted(estimate: Answer) -> str:
    """Return the samples of a step and their length, in words."""
    number, unit = estimate.training.samples, estimate.training.unit
    noun = unit if number > 1 else unit.removesuffix("s")
    return f"{number} {noun} of up to {estimate.training.tokens:,} tokens a step"
