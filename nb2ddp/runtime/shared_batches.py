"""Batches that the processes share: a loss that compares the samples of a batch finds all of the notebook's in it."""

import math
import sys
from collections.abc import Iterator
from typing import Any

from accelerate.data_loader import BatchSamplerShard

from nb2ddp.runtime.process import is_main_process, world_size


def share_batches(batch: int) -> int:
    """How many samples a batch holds that the processes share: the notebook's number, or the next that they divide."""
    shared = math.ceil(batch / world_size) * world_size
    print(f"Samples a batch: {shared} ({shared // world_size} in each of {world_size} processes)")
    if shared != batch and is_main_process:
        print(f"Batch: {shared}, not the notebook's {batch}: an epoch takes fewer steps", file=sys.stderr)
    return shared


def equal_parts(sampler: BatchSamplerShard) -> Iterator[Any]:
    """This process's part of each batch. Of one that is not full, up to `num_processes - 1` samples are left out."""
    for batch in sampler.batch_sampler:
        part = len(batch) // sampler.num_processes
        if part:
            yield batch[part * sampler.process_index : part * (sampler.process_index + 1)]


def keep_last_batches(arguments: Any) -> Any:
    """Training arguments with which the batches of an epoch train that are not full, as on one GPU."""
    if world_size > 1:
        arguments.dataloader_drop_last = False  # sentence-transformers sets it for several processes
        BatchSamplerShard._iter_with_split = equal_parts  # which would fill these batches up
    return arguments
