"""How a script divides a step among its processes: its own functions say it."""

from __future__ import annotations

import math
import re
import sys
from functools import cache
from typing import Any

from nb2ddp.script.linker import link


def divided(split: str, processes: int, memory: float) -> tuple[int, int]:
    """Rows at a time and accumulation steps of each process.

    Args:
        split: the call in the script, with numbers alone: `split_batch(2, 4)`.
        processes: GPUs of the job.
        memory: of each GPU, in bytes.
    """
    names = _functions(split.partition("(")[0])
    names |= {"world_size": processes, "smallest_gpu": lambda _: memory}
    rows, pieces = eval(split, names)
    return int(rows), int(pieces)


@cache
def _functions(name: str) -> dict[str, Any]:
    """The functions of the setup block (nb2ddp/runtime/batch.py), from their text: their module imports torch."""
    names: dict[str, Any] = {"math": math, "sys": sys, "is_main_process": False}
    names["print"] = lambda *_, **__: None
    for text in link([f"{name}()"]).functions:
        exec(text, names)
    return names


def accumulating(split: str, accumulation: int) -> str:
    """Return the call for a notebook with another number of accumulation steps."""
    return re.sub(r"\((.*?), [^,)]*", rf"(\1, {accumulation}", split, count=1)
