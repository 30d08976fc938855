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
#: Trainings that one line tells of.
_TOLD = 3
#: GPUs of a machine, at most, and the share of each that a model fills that is spread over them: layers stay whole.
_MACHINE, _SPREAD = 8, 0.85
#: The share of a GPU that a vLLM engine needs at least for keys and values, beside the weights that Unsloth shares.
_KEYS = 0.1


@dataclass(frozen=True)
class Fit:
    """A training on one kind of GPU.

    Attributes:
        rows: the per-device batch.
        pieces: accumulation steps of each process.
        peak: bytes that torch allocates on each GPU.
        needs_option: it fits only with `--batch 1`.
        split_over: GPUs of this kind over which one process can spread the model; 0 where a whole copy fits, or where
            more GPUs than a machine has would be needed.
    """

    gpu: Gpu
    fits: bool
    rows: int
    pieces: int
    checkpointing: bool
    peak: float
    needs_option: bool = False
    split_over: int = 0


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
        """How many GPUs a step of the longest rows keeps busy, each with as many samples."""
        samples = self.training.samples
        most = samples * self.training.rows_of_one * self.training.tokens // BUSY
        return max(n for n in range(1, samples + 1) if n == 1 or (n <= most and samples % n == 0))

    @property
    def busy_samples(self) -> int:
        """Return the samples of a step that keep four GPUs busy, a power of two."""
        row = self.training.tokens * self.training.rows_of_one
        return int(2 ** math.ceil(math.log2(max(4, 4 * BUSY / row))))


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
    if needed.peak(rows) <= room:
        return Fit(gpu, True, rows, pieces, training.checkpoints, peak)
    gpus = 0 if training.engine else math.ceil(peak / (_SPREAD * gpu.memory - CONTEXT))
    return Fit(gpu, False, rows, pieces, training.checkpoints, peak, split_over=gpus if gpus <= _MACHINE else 0)


def in_short(answers: Sequence[Answer]) -> str:
    """Return one line on all trainings: `fits 24 GB; 8 samples of up to 2,048 tokens a step keep at most 2 GPUs busy`.

    Empty if nothing is known; of many trainings, only that with the smallest step is told.
    """
    if not answers:
        return ""
    gpus = [Gpu(f"{size} GB", memory) for size, memory in SIZES.items()]
    found = [(gpu.name, [_fit(a.training, a.shape, gpu, a.processes) for a in answers]) for gpu in gpus]
    fitting = [(name, any(fit.needs_option for fit in fits)) for name, fits in found if all(fit.fits for fit in fits)]
    smallest = fitting[0][0] if fitting else ""
    as_it_is = next((name for name, needs_option in fitting if not needs_option), "")
    gains = list(dict.fromkeys(map(_gain, answers)))
    if len(gains) > 1:
        gains = [f"training {number}: {gain}" for number, gain in enumerate(map(_gain, answers), 1)]
    if len(gains) > _TOLD:
        gains = [_gain(min(answers, key=lambda estimate: estimate.busy)) + f", the least of {len(answers)} trainings"]
    if smallest != as_it_is:
        fits = f"fits {smallest} with --batch 1{f', {as_it_is} without' if as_it_is else ''}"
    else:
        fits = f"fits {smallest}" if smallest else f"does not fit {max(SIZES)} GB"
    return "; ".join([fits, *gains])


def _gain(estimate: Answer) -> str:
    """Return how many GPUs a step keeps busy, in words."""
    if estimate.busy > 1:
        return f"{counted(estimate)}{_kept(estimate)} keep at most {estimate.busy} GPUs busy"
    return f"a second GPU gains little: {counted(estimate)}{_kept(estimate)}"


def _kept(estimate: Answer) -> str:
    """Return on how many GPUs a step has the notebook's samples, in words; empty if two and four are among them.

    Empty for KTO too, which needs two rows on each GPU.
    """
    training = estimate.training
    numbers = range(2, max(_MACHINE, estimate.busy) + 1)
    kept = [str(n) for n in numbers if n * math.prod(training.divided(n, SIZES[80])) == training.samples]
    if {"2", "4"} <= {*kept} or "KTO" in training.trainer:
        return ""
    several = " or ".join(filter(None, (", ".join(kept[:-1]), *kept[-1:])))
    return f" (also on {several} GPUs, on others more)" if kept else " (on several GPUs more)"


def counted(estimate: Answer) -> str:
    """Return the samples of a step and their length, in words."""
    number, unit = estimate.training.samples, estimate.training.unit
    noun = unit if number > 1 else unit.removesuffix("s")
    return f"{number} {noun} of up to {estimate.training.tokens:,} tokens a step"
