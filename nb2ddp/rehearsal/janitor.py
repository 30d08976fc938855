"""Clean up after a rehearsal. If it was killed, `python janitor.py FOLDER [KEPT]` cleans up.

The input of this program is a pipe from the rehearsal, which closes when the rehearsal ends. The processes of a
rehearsal, and those that they have started, have their home below its folder.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def cleaned(folder: Path, kept: Path | None) -> Iterator[None]:
    """Remove the processes and the folder of a rehearsal when it ends, even if it is killed.

    Args:
        folder: the folder of the rehearsal.
        kept: a folder to which its files are moved, or None.
    """
    command = [sys.executable, __file__, str(folder), *([str(kept.resolve())] if kept else [])]
    null = subprocess.DEVNULL
    janitor = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=null, stderr=null, start_new_session=True)
    try:
        yield
    finally:
        _clean(*command[2:])
        janitor.kill()
        janitor.wait()
        assert janitor.stdin is not None
        janitor.stdin.close()


def _clean(folder: str, kept: str = "") -> None:
    """Kill the processes that may still write into a folder, move its files to `kept`, and remove it."""
    end = time.monotonic() + 10
    while _kill_those_below(folder) and time.monotonic() < end:
        time.sleep(0.05)
    for each in Path(folder).iterdir() if kept else ():
        shutil.move(each, kept)
    while (_kill_those_below(folder) or Path(folder).exists()) and time.monotonic() < end:
        shutil.rmtree(folder, ignore_errors=True)
        time.sleep(0.05)


def _kill_those_below(folder: str) -> bool:
    """Kill every process whose home is below a folder; return whether there was one."""
    import psutil

    found = False
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            is_below = process.environ().get("HOME", "").startswith(folder + os.sep)
            if is_below and process.status() != psutil.STATUS_ZOMBIE:
                process.kill()
                found = True
    return found


if __name__ == "__main__":
    sys.stdin.read()
    _clean(*sys.argv[1:])
