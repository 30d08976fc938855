"""The program of each process of a rehearsal, run with `parent`, `play SCRIPT`, `build REQUEST` or `agent PORT`."""

from __future__ import annotations

import ctypes
import importlib.util
import signal
import sys
from pathlib import Path

PACKAGE = "nb2ddp_stage"


def load() -> None:
    """Import this folder as a package under another name, so that the script sees neither nb2ddp nor this folder."""
    here = Path(__file__).resolve().parent
    spec = importlib.util.spec_from_file_location(PACKAGE, here / "__init__.py", submodule_search_locations=[str(here)])
    assert spec is not None
    assert spec.loader is not None
    package = importlib.util.module_from_spec(spec)
    sys.modules[PACKAGE] = package
    spec.loader.exec_module(package)


def end_with_parent() -> None:
    """Let the kernel kill this process when the program that started it is killed (Linux, `man 2 PR_SET_PDEATHSIG`)."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)


if __name__ == "__main__":
    end_with_parent()
    load()
    sys.path.pop(0)
    sys.exit(importlib.import_module(f"{PACKAGE}.{sys.argv[1]}").main())
