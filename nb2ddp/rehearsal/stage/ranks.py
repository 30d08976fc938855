"""Record the collective calls of torch.distributed, when they begin and when they have ended."""

from __future__ import annotations

import threading
from typing import Any

from . import gloo
from .events import Call, Called
from .hooks import wrap
from .log import Log

CALLS = (
    "init_process_group all_reduce all_gather all_gather_into_tensor all_gather_object all_to_all all_to_all_single "
    "barrier broadcast broadcast_object_list gather gather_object monitored_barrier reduce reduce_scatter "
    "reduce_scatter_tensor scatter scatter_object_list destroy_process_group new_group"
).split()


def _record(log: Log, depth: threading.local, name: str, original: Any, *args: Any, **kwargs: Any) -> Any:
    if getattr(depth, "inside", False):
        return original(*args, **kwargs)
    size = next((value.numel() for value in args if hasattr(value, "numel")), None)
    log.write(Call(name, size))
    depth.inside = True
    try:
        return original(*args, **kwargs)
    finally:
        depth.inside = False
        log.write(Called(name))


def lay(log: Log) -> None:
    """Record these calls once torch.distributed has been imported."""
    depth, home = threading.local(), "torch.distributed.distributed_c10d"
    wrap(home, "destroy_process_group", gloo.pause_after)
    for name in CALLS:
        wrap(home, name, _record, log, depth, name)
