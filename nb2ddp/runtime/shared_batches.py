"""Split each of the notebook's batches over all processes, for losses that compare the samples of a batch."""

import math
import sys
from collections.abc import Iterator
from typing import Any

from accelerate.data_loader import BatchSamplerShard

from nb2ddp.runtime.process import is_main_process, world_size


def share_batches(batch: int) -> int:
    """Return the notebook's batch, rounded up to a multiple of the number of processes that split it."""
    shared = math.ceil(batch / world_size) * world_size
    print(f"Samples a batch: {shared} ({shared // world_size} in each process)")
    if shared != batch and is_main_process:
        print(f"A batch has {shared} samples, not the notebook's {batch}", file=sys.stderr)
    return shared


def equal_parts(self: BatchSamplerShard) -> Iterator[Any]:
    """Yield this process's part of each batch; an incomplete batch loses the samples that cannot be divided."""
    for batch in self.batch_sampler:
        size = len(batch) // self.num_processes
        if size:
            yield batch[size * self.process_index : size * (self.process_index + 1)]


def keep_last_batches(arguments: Any) -> Any:
    """Return training arguments with which the last, incomplete batch of an epoch is trained too, as on one GPU."""
    if world_size > 1:
        arguments.dataloader_drop_last = False  # sentence-transformers sets it on several GPUs
        BatchSamplerShard._iter_with_split = equal_parts  # accelerate's own adds rows to incomplete batches
    return arguments
