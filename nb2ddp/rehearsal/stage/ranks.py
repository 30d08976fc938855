"""Record the calls of torch.distributed that need every process, when they begin and when they have ended."""

from __future__ import annotations

import functools
import threading
from typing import TYPE_CHECKING, Any

from . import gloo
from .events import Call, Called
from .hooks import after_import

if TYPE_CHECKING:
    from types import ModuleType

    from .log import Log

CALLS = (
    "init_process_group all_reduce all_gather all_gather_into_tensor all_gather_object all_to_all all_to_all_single "
    "barrier broadcast broadcast_object_list gather gather_object monitored_barrier reduce reduce_scatter "
    "reduce_scatter_tensor scatter scatter_object_list destroy_process_group new_group"
).split()


def _recorded(name: str, call: Any, log: Log, depth: threading.local) -> Any:
    @functools.wraps(call)
    def recorded(*args: Any, **kwargs: Any) -> Any:
        if getattr(depth, "inside", False):
            return call(*args, **kwargs)
        size = next((value.numel() for value in args if hasattr(value, "numel")), None)
        log.write(Call(name, size))
        depth.inside = True
        try:
            return call(*args, **kwargs)
        finally:
            depth.inside = False
            log.write(Called(name))

    return recorded


def lay(log: Log) -> None:
    """Record from when torch.distributed has been imported."""
    depth = threading.local()

    def record(c10d: ModuleType) -> None:
        for name in CALLS:
            if hasattr(c10d, name):
                setattr(c10d, name, _recorded(name, getattr(c10d, name), log, depth))

    after_import("torch.distributed.distributed_c10d", gloo.pause_after_destroy)
    after_import("torch.distributed.distributed_c10d", record)
