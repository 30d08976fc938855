"""Split the notebook's global batch over all processes.

Each function returns the per-device batch and the accumulation steps of every process. Their product times `world_size`
is the notebook's global batch (per-device batch x accumulation), or the next larger number that can be split.
"""

import math

import torch

from nb2ddp.runtime.process import world_size


def smallest_gpu(default: float) -> float:
    """Return the bytes of memory of this machine's smallest GPU, or `default` if it has no GPU."""
    gpus = range(torch.cuda.device_count())
    return min((torch.cuda.get_device_properties(n).total_memory for n in gpus), default=default)


def split_batch(per_device: int, accumulation: int, largest: int = 0, gpu_memory: float = 15e9) -> tuple[int, int]:
    """Split a step of the notebook, made for a GPU of `gpu_memory` bytes: return a process's batch and accumulation."""
    share = math.ceil(per_device * accumulation / world_size)  # samples of one process
    if not largest:  # a GPU with more memory takes more samples at a time, but 8 keep any GPU busy
        largest = min(int(per_device * smallest_gpu(gpu_memory) / gpu_memory), max(per_device, 8))
    size = max(n for n in range(1, max(largest, 1) + 1) if share % n == 0)
    split = f"per-device batch {size} x accumulation {share // size} x processes {world_size}"
    print(f"Samples a step: {share * world_size} ({split}; in the notebook {per_device * accumulation})")
    return size, share // size


def split_completions(per_device: int, accumulation: int, num_generations: int, largest: int = 0) -> tuple[int, int]:
    """Split the completions of a step of the notebook: return each process's batch and accumulation."""
    if per_device * accumulation % num_generations:
        per_device = num_generations  # as Unsloth does
    unit = math.lcm(num_generations, world_size)  # whole groups, with as many completions in each process
    share = math.ceil(per_device * accumulation / unit) * unit // world_size  # completions of one process
    size = max(n for n in range(1, (largest or per_device) + 1) if share % n == 0)
    split = f"per-device batch {size} x accumulation {share // size} x processes {world_size}"
    print(f"Completions a step: {share * world_size} ({split}; in the notebook {per_device * accumulation})")
    return size, share // size
