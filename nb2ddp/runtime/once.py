"""Run something in one process for all others."""

import os
from collections.abc import Callable
from typing import Any

from accelerate.utils import gather_object

from nb2ddp.runtime.process import local_rank


def run_once(work: Callable[[], Any], in_whole_job: bool = False) -> Any:
    """Call `work` on the first rank of each machine, or on the main process only, and return its value on all ranks."""
    rank = int(os.environ.get("RANK", 0))
    first = 0 if in_whole_job else rank - local_rank
    return gather_object([work() if rank == first else None])[first]
