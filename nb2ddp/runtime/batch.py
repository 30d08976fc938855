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


def split_batch(per_device: int, accumulation: int, largest: int = 0, notebook_gpu: float = 15e9) -> tuple[int, int]:
    """Return each process's batch (`largest` at most) and accumulation; `notebook_gpu`: bytes of the notebook's GPU."""
    share = math.ceil(per_device * accumulation / world_size)  # samples of one process
    if not largest:  # scale the batch with the GPU memory, but not beyond 8 or the notebook's batch
        largest = min(int(per_device * smallest_gpu(notebook_gpu) / notebook_gpu), max(per_device, 8))
    size = max(n for n in range(1, max(largest, 1) + 1) if share % n == 0)
    split = f"per-device batch {size} x accumulation {share // size} x processes {world_size}"
    print(f"Samples a step: {share * world_size} ({split}; in the notebook {per_device * accumulation})")
    return size, share // size


def split_completions(per_device: int, accumulation: int, num_generations: int, largest: int = 0) -> tuple[int, int]:
    """Divide the completions of a step among the processes: return each process's batch and accumulation."""
    if per_device * accumulation % num_generations:
        per_device = num_generations  # Unsloth's correction on one GPU
    unit = math.lcm(num_generations, world_size)  # whole groups, and the same number of completions for each process
    share = math.ceil(per_device * accumulation / unit) * unit // world_size  # completions of one process
    size = max(n for n in range(1, (largest or per_device) + 1) if share % n == 0)
    split = f"per-device batch {size} x accumulation {share // size} x processes {world_size}"
    print(f"Completions a step: {share * world_size} ({split}; in the notebook {per_device * accumulation})")
    return size, share // size
