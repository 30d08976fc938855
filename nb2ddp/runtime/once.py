"""What one process does for the others."""

import os
from collections.abc import Callable
from typing import Any

from accelerate.utils import gather_object

from nb2ddp.runtime.process import local_rank


def run_once(work: Callable[[], Any], in_whole_job: bool = False) -> Any:
    """What `work()` gives: each machine's first process (or the main one alone) does it, the others take its value."""
    rank = int(os.environ.get("RANK", 0))
    first = 0 if in_whole_job else rank - local_rank
    return gather_object([work() if rank == first else None])[first]
