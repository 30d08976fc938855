"""Split the notebook's global batch over all ranks.

Each function returns the per-device batch and the accumulation steps of every rank. Their product times `world_size`
is the notebook's global batch (per-device batch x accumulation), or the next larger number that can be split.
"""

import math
import sys

import torch

from nb2ddp.runtime.process import is_main_process, world_size

per_device_batches: list[int] = []  # one for each training


def smallest_gpu(default: float) -> float:
    """Return the bytes of memory of this machine's smallest GPU, or `default` if it has no GPU."""
    gpus = [torch.cuda.get_device_properties(n).total_memory for n in range(torch.cuda.device_count())]
    return min(gpus, default=default)


def split_share(notebook_batch: int, share: int, largest: int, unit: str = "samples") -> tuple[int, int]:
    """Divide a rank's share of a step into equal batches of at most `largest` samples: return their size and number."""
    size = max(n for n in range(1, largest + 1) if share % n == 0)
    total, accumulation = share * world_size, share // size
    per_device_batches.append(size)
    split = f"per-device batch {size} x accumulation {accumulation} x processes {world_size}"
    print(f"{unit.capitalize()} a step: {total} ({split})")
    if total != notebook_batch and is_main_process:
        print(f"A step has {total} {unit}, not the notebook's {notebook_batch}", file=sys.stderr)
    return size, accumulation


def split_batch(per_device: int, accumulation: int, gpu_memory: float = 15e9) -> tuple[int, int]:
    """Split the notebook's global batch over all ranks, in fewer accumulation steps on a larger GPU.

    The notebook's per-device batch was chosen for a GPU with `gpu_memory` bytes (15e9: a T4, Colab's free GPU).
    A GPU with twice the memory takes up to twice as many samples at a time.
    """
    batch = per_device * accumulation
    share = math.ceil(batch / world_size)  # samples of one rank in a step
    largest = max(1, int(per_device * smallest_gpu(gpu_memory) / gpu_memory))
    return split_share(batch, share, largest)


def split_batch_no_larger(per_device: int, accumulation: int) -> tuple[int, int]:
    """Split the notebook's global batch over all ranks; the per-device batch is at most the notebook's."""
    batch = per_device * accumulation
    share = math.ceil(batch / world_size)  # samples of one rank in a step
    return split_share(batch, share, per_device)


def split_completions(per_device: int, accumulation: int, num_generations: int) -> tuple[int, int]:
    """Split the completions of a step over all ranks; a step keeps all completions of a prompt together."""
    if per_device * accumulation % num_generations:
        per_device = num_generations  # as Unsloth does
    batch = per_device * accumulation
    unit = math.lcm(num_generations, world_size)  # whole prompts, in equal shares
    share = math.ceil(batch / unit) * unit // world_size  # completions of one rank in a step
    return split_share(batch, share, per_device, "completions")


def split_by_size(size: int, per_device: int, accumulation: int, num_generations: int = 1) -> tuple[int, int]:
    """Split the notebook's global batch over all ranks, with `size` as the per-device batch."""
    if per_device * accumulation % num_generations:
        per_device = num_generations  # as Unsloth does
    batch = per_device * accumulation
    unit = math.lcm(size * world_size, num_generations)
    share = math.ceil(batch / unit) * unit // world_size  # samples of one rank in a step
    return split_share(batch, share, size, "completions" if num_generations > 1 else "samples")
