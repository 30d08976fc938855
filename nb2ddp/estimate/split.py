"""How a script divides a step among its processes: its own functions say it."""

from __future__ import annotations

import math
import sys
from functools import cache
from typing import Any

from nb2ddp.script.linker import link


@cache
def divided(split: str, processes: int, memory: float) -> tuple[int, int]:
    """Rows at a time and accumulation steps of each process.

    The functions of the setup block (nb2ddp/runtime/batch.py) are run as text, as their module imports torch.

    Args:
        split: the call in the script, with numbers alone: `split_batch(2, 4)`.
        processes: GPUs of the job.
        memory: of each GPU, in bytes.
    """
    names: dict[str, Any] = {"math": math, "sys": sys, "world_size": processes, "is_main_process": False}
    names["print"] = lambda *_, **__: None
    for text in link([split]).functions:
        exec(text, names)
    names["smallest_gpu"] = lambda _: memory
    rows, pieces = eval(split, names)
    return int(rows), int(pieces)
