"""The last words of a job that runs out of GPU memory."""

import sys
from types import TracebackType

import torch

from nb2ddp.runtime.batch import per_device_batches
from nb2ddp.runtime.process import local_rank


def explain_out_of_memory(kind: type[BaseException], error: BaseException, traceback: TracebackType | None) -> None:
    """Print an uncaught error and, if the GPU's memory ran out, what to type."""
    sys.__excepthook__(kind, error, traceback)
    if isinstance(error, torch.cuda.OutOfMemoryError):
        memory = torch.cuda.get_device_properties(local_rank).total_memory / 1e9
        print(f"GPU {local_rank} has {memory:.0f} GB; nb2ddp estimate {sys.argv[0]} says what fits", file=sys.stderr)
        if any(size > 1 for size in per_device_batches):
            print("Or convert again (the line is at the script's top) with --per-device-batch-size 1", file=sys.stderr)
        elif per_device_batches:
            print("The per-device batch is 1: lower max_seq_length or max_completion_length", file=sys.stderr)
