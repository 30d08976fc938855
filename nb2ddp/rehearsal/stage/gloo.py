"""Give the threads of gloo, which joins processes without GPUs, a moment before the interpreter ends."""

from __future__ import annotations

import time
from typing import Any

#: Seconds. Freeing takes microseconds; a thread may have to wait for a processor before.
MOMENT = 0.5


def pause_after(destroy: Any, *args: Any, **kwargs: Any) -> None:
    """Sleep a moment after `destroy_process_group` of torch's `distributed_c10d`.

    Gloo's threads free the tensors of the last gather and need the interpreter's lock for it. A thread that asks for
    the lock while the interpreter ends aborts the process: https://github.com/pytorch/pytorch/pull/179291. The threads
    live on behind that call, as the model wrapped for DDP still holds the group, and nothing tells when they are done.
    """
    destroy(*args, **kwargs)
    time.sleep(MOMENT)  # without the lock
