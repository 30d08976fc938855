"""Scripts one after another in one process (or one a GPU): `python -m benchmarks.gpu.lane FOLDER ...`.

Starting a process and importing takes as long as a measurement, so runs that follow each other share it. Each folder
holds a run of `side_by_side.py`; its script is left after its timed steps, and what it held is freed.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import sys
import time
import traceback
from pathlib import Path
from types import ModuleType

RANK = os.environ.get("RANK", "0")


def train(folder: Path, script: ModuleType) -> None:
    """Run the script of a folder until its timed steps are over; its output goes to a file beside it.

    Raises:
        Exception: whatever ends the script before that.
    """
    import sitecustomize  # type: ignore[import-not-found]  # the one of `gated`

    about = json.loads((folder / "run.json").read_text())
    os.environ["GATE_FOLDER"] = str(folder)
    os.chdir(folder / "work")
    log = os.open(folder / f"log-{RANK}.txt", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(log, 1)
    os.dup2(log, 2)
    sys.argv = ["train.py", *about["arguments"]]
    sys.modules["__main__"] = script
    script.__file__ = "train.py"
    with contextlib.suppress(sitecustomize.TrainingOver):
        exec(compile(Path("train.py").read_text(), "train.py", "exec"), script.__dict__)


def forget(script: ModuleType) -> None:
    """Free what a script held, some of which libraries keep: the first trainer of a process among it.

    What they keep all the same is said in $GATE_HELD, in bytes.
    """
    import torch
    from transformers import Trainer
    from transformers.trainer_callback import CallbackHandler

    script.__dict__.clear()
    script.__dict__["__name__"] = "__main__"  # dill takes every dictionary that equals its main module's for that one
    for each in gc.get_objects():
        if issubclass(type(each), (Trainer, CallbackHandler)):
            each.__dict__.clear()
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        os.environ["GATE_HELD"] = str(torch.cuda.memory_allocated())


def main() -> None:
    for folder in map(Path, sys.argv[1:]):
        script = ModuleType("__main__")
        try:
            train(folder, script)
        except Exception:
            traceback.print_exc()
        except SystemExit as left:
            print("the script left with", left.code, file=sys.stderr)
        forget(script)
        (folder / f"over-{RANK}").touch()
        while not (folder / "next").exists():
            time.sleep(0.02)
    os._exit(0)


if __name__ == "__main__":
    main()
