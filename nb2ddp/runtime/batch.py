"""The notebook's global batch, split over the processes of a job.

Each function returns the per-device batch and the accumulation steps of every process. Their product times
`world_size` is the notebook's own (per device x accumulation), or the next larger number that can be split.
"""

import math
import sys

import torch

from nb2ddp.runtime.process import is_main_process, world_size


def smallest_gpu(otherwise: float) -> float:
    """The memory of the smallest GPU of this machine, in bytes; `otherwise` where there is none."""
    gpus = [torch.cuda.get_device_properties(n).total_memory for n in range(torch.cuda.device_count())]
    return min(gpus, default=otherwise)


def split_share(batch: int, share: int, largest: int) -> tuple[int, int]:
    """Cut a process's share of a step into equal pieces of at most `largest`: their size, and their number."""
    size = max(n for n in range(1, largest + 1) if share % n == 0)
    total = share * world_size
    said = f"{total} ({size} x {share // size} in each of {world_size} processes)"
    print(f"Samples a step: {said}; if memory runs out: nb2ddp --per-device-batch-size 1")
    if total != batch and is_main_process:
        print(f"Global batch: {total}, not the notebook's {batch}: an epoch takes fewer steps", file=sys.stderr)
    return size, share // size


def split_batch(per_device: int, accumulation: int, gpu_memory: float = 15e9) -> tuple[int, int]:
    """The notebook's batch over all processes, in as few accumulation steps as the GPUs have memory for.

    `per_device` samples at a time are for the notebook's GPU, which has `gpu_memory` bytes (a T4: 15e9).
    """
    batch = per_device * accumulation
    share = math.ceil(batch / world_size)  # samples of one process in a step
    largest = max(1, int(per_device * smallest_gpu(gpu_memory) / gpu_memory))
    return split_share(batch, share, largest)


def split_batch_as_it_is(per_device: int, accumulation: int) -> tuple[int, int]:
    """The notebook's batch over all processes, with no more samples at a time than in the notebook."""
    batch = per_device * accumulation
    share = math.ceil(batch / world_size)  # samples of one process in a step
    return split_share(batch, share, per_device)


def split_completions(per_device: int, accumulation: int, num_generations: int) -> tuple[int, int]:
    """The notebook's completions over all processes; a step holds all completions of a prompt."""
    if per_device * accumulation % num_generations:
        per_device = num_generations  # as Unsloth does
    batch = per_device * accumulation
    unit = math.lcm(num_generations, world_size)  # completions that make whole prompts and can be shared equally
    share = math.ceil(batch / unit) * unit // world_size  # completions of one process in a step
    return split_share(batch, share, per_device)


def split_by_size(size: int, per_device: int, accumulation: int, num_generations: int = 1) -> tuple[int, int]:
    """The notebook's batch over all processes, `size` samples at a time in each of them."""
    if per_device * accumulation % num_generations:
        per_device = num_generations  # as Unsloth does
    batch = per_device * accumulation
    unit = math.lcm(size * world_size, num_generations)
    share = math.ceil(batch / unit) * unit // world_size  # samples of one process in a step
    return split_share(batch, share, size)
