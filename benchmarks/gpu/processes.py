"""The processes of a run: those that carry its mark in their environment."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from pathlib import Path


def running(mark: str) -> dict[int, str]:
    """The processes that carry `mark` in their environment, with their command lines."""
    found = {}
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if mark.encode() in (process / "environ").read_bytes():
                found[int(process.name)] = (process / "cmdline").read_bytes().replace(b"\0", b" ").decode()[:200]
        except OSError:
            continue
    return found


def stop(mark: str) -> None:
    """End every process that carries `mark`; Python ones say first where each of their threads stands.

    A launcher's workers are sessions of their own: ending its process group would leave them behind.
    """
    for number in (signal.SIGABRT, signal.SIGKILL):
        for process in running(mark):
            with contextlib.suppress(OSError):
                os.kill(process, number)
        time.sleep(5)
