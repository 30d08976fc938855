"""Run something in one process for all others."""

import os
import pickle
from collections.abc import Callable
from typing import Any

from accelerate.utils import gather_object

from nb2ddp.runtime.process import local_rank


def as_sent(error: Exception) -> Any:
    """Return an error as the other ranks get it: a copy, or its text if it cannot be copied."""
    try:
        return pickle.loads(pickle.dumps(error))
    except Exception:
        return RuntimeError(f"{type(error).__name__}: {error}")


def run_once(work: Callable[[], Any], in_whole_job: bool = False) -> Any:
    """Call `work` on the first rank of each machine, or on the main process only; return or raise the same on all."""
    rank = int(os.environ.get("RANK", 0))
    first = 0 if in_whole_job else rank - local_rank
    value = sent = cause = None
    if rank == first:
        try:
            value = work()
        except Exception as error:  # all ranks raise it: one that went on alone would wait for the others
            sent, cause = as_sent(error), error
    value, sent = gather_object([(value, sent)])[first]
    if sent:
        raise sent from cause
    return value
