"""Run something in one process, and give its value to the others."""

import os
import pickle
from collections.abc import Callable
from typing import Any

from accelerate.utils import broadcast_object_list, gather_object

from nb2ddp.runtime.process import is_main_process, local_rank


def run_once(work: Callable[[], Any]) -> Any:
    """Call `work` in the main process alone; return its value in all processes."""
    return broadcast_object_list([work() if is_main_process else None])[0]


def run_once_on_each_machine(work: Callable[[], Any]) -> Any:
    """Call `work` in the first process of each machine; return its value in all processes of that machine."""
    values = gather_object([work() if local_rank == 0 else None])
    return values[int(os.environ.get("RANK", 0)) - local_rank]


def run_once_in_try(work: Callable[[], Any], run: Callable[..., Any] = run_once) -> Any:
    """As `run_once`, and raise an error of `work` in all processes, so that all come to the same `except`."""

    def tried() -> Any:
        try:
            return work(), None
        except Exception as error:
            return None, copied(error)

    value, error = run(tried)
    if error:
        raise error
    return value


def copied(error: Exception) -> Exception:
    """Return a copy of an error as other processes get it: an error with its text if it cannot be sent."""
    try:
        return pickle.loads(pickle.dumps(error))  # type: ignore[no-any-return]
    except Exception:
        return RuntimeError(f"{type(error).__name__}: {error}")
