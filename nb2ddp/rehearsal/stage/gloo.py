"""Give the threads of gloo, which connects processes without GPUs, a moment before the interpreter ends."""

from __future__ import annotations

import time
from typing import Any

#: Seconds. Freeing takes microseconds, but a thread may first have to wait for a processor.
MOMENT = 0.5


def pause_after(destroy: Any, *args: Any, **kwargs: Any) -> None:
    """Sleep a moment after `destroy_process_group` of torch's `distributed_c10d`.

    Gloo's threads free the tensors of the last gather and need the interpreter's lock for it. A thread that asks for
    the lock while the interpreter ends aborts the process: https://github.com/pytorch/pytorch/pull/179291. The threads
    outlive that call, because the model wrapped for DDP still holds the group, and their end cannot be observed.
    """
    destroy(*args, **kwargs)
    time.sleep(MOMENT)  # without the interpreter's lock
