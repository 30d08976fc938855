"""Run a script on a machine without a GPU: "cuda" means the CPU, and operations that need a GPU are replaced."""

from __future__ import annotations

import os
import runpy
import sys
from typing import Any

from . import device, fast
from .hooks import wrap
from .log import Log


def main() -> None:
    """Run the script that the command line names, with its arguments."""
    sys.argv = [os.path.abspath(sys.argv[2]), *sys.argv[3:]]
    sys.path.insert(0, os.path.dirname(sys.argv[0]))
    log = Log()
    log.watch(sys.argv[0])
    log.is_silent = True
    device.lay(log)
    fast.lay("real", log)
    wrap("transformers.training_args", "TrainingArguments.__post_init__", _train_on_cpu)
    runpy.run_path(sys.argv[0], run_name="__main__")


def _train_on_cpu(original: Any, self: Any) -> None:
    device.train_here(self)
    original(self)
