"""Loaded by Python itself at the start of each process of a run that `side_by_side.py` starts.

Several scripts get ready at once; each trains its first steps, says that it is ready, and waits until its turn comes.
So the steps that are timed have their GPUs and the processors for themselves, while getting ready takes the time of the
slowest. $GATE_FOLDER names the run: `lane.py` sets it before each script. When the timed steps are over the script is
left by `TrainingOver`, as what comes after training is not asked for.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rehearsal_stage import hooks

if TYPE_CHECKING:
    from types import ModuleType

WARM_UP = int(os.environ["GATE_WARM_UP"])  # steps before the wait
TIMED = int(os.environ["GATE_TIMED"])
RANK = int(os.environ.get("RANK", 0))
facts: dict[str, Any] = {}


class TrainingOver(BaseException):
    """The timed steps are over."""


def wait_for_turn(folder: Path) -> None:
    """Say that this process is ready, and wait until it may go on."""
    import torch

    if torch.cuda.is_available():
        torch.cuda.empty_cache()  # others on this GPU are timed meanwhile
    (folder / f"ready-{RANK}").touch()
    while not (folder / "go").exists():
        time.sleep(0.01)


def synchronized() -> float:
    """The time when the GPU has done what it was given."""
    import torch

    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return time.perf_counter()


def memory() -> dict[str, Any]:
    """What this process has of its GPU, in bytes: now, and at most."""
    import torch

    if not torch.cuda.is_available():
        return {"memory": 0, "reserved": 0, "total": 0, "gpu": "none"}
    return {
        "memory": torch.cuda.max_memory_allocated(),
        "reserved": torch.cuda.max_memory_reserved(),
        "total": torch.cuda.get_device_properties(torch.cuda.current_device()).total_memory,
        "gpu": torch.cuda.get_device_name(),
    }


def begin(args: Any) -> None:
    """Note what is trained, and how much memory is taken before the first step."""
    import torch

    facts.clear()
    facts.update(
        steps=[],
        per_device=args.per_device_train_batch_size,
        accumulation=args.gradient_accumulation_steps,
        held=int(os.environ.get("GATE_HELD", 0)),
        before=torch.cuda.memory_allocated() if torch.cuda.is_available() else 0,
    )


def end(folder: Path) -> None:
    """Write down what was measured, and leave the script."""
    facts.update(memory(), processor=round(time.process_time() - facts.pop("processor_before"), 3))
    (folder / f"{RANK}.json").write_text(json.dumps(facts))
    raise TrainingOver


def follow(callbacks: ModuleType) -> None:
    """Act on the events that a trainer hands to its callbacks."""
    handler = callbacks.CallbackHandler
    original = handler.call_event

    def call_event(self: Any, event: str, args: Any, state: Any, control: Any, **kwargs: Any) -> Any:
        if "GATE_FOLDER" not in os.environ:  # a process of `trials.py`, which waits by itself
            return original(self, event, args, state, control, **kwargs)
        folder = Path(os.environ["GATE_FOLDER"])
        logs = kwargs.get("logs") or {}
        if event == "on_train_begin":
            begin(args)
        if event == "on_step_begin" and state.global_step == WARM_UP:
            wait_for_turn(folder)
            facts.update(began=synchronized(), processor_before=time.process_time())
        if event == "on_log" and "loss" in logs:
            seen = {name: float(logs[name]) for name in ("loss", "grad_norm") if name in logs}
            facts["steps"].append({"at": synchronized(), **seen})
            if state.global_step == WARM_UP + TIMED:
                end(folder)
        return original(self, event, args, state, control, **kwargs)

    handler.call_event = call_event


def see_alone(module: ModuleType) -> None:
    """Let a script see its GPU's memory as if it had the GPU for itself: others may be training there when it asks."""
    original = module.mem_get_info

    def mem_get_info(*args: Any, **kwargs: Any) -> tuple[int, int]:
        _, total = original(*args, **kwargs)
        return total - module.memory_reserved() - CONTEXT, total

    module.mem_get_info = mem_get_info  # type: ignore[attr-defined]


def wait_for_models(module: ModuleType) -> None:
    """Let models be made while processes start: wait after the last import before one is loaded."""
    if module.__name__ == "unsloth" or "unsloth" not in sys.modules:
        while not Path(os.environ["GATE_LOAD"]).exists():
            time.sleep(0.05)


CONTEXT = 600_000_000  # bytes that CUDA takes for a process
hooks.after_import("transformers.trainer_callback", follow)
hooks.after_import("torch.cuda", see_alone)
hooks.after_import("unsloth", wait_for_models)
hooks.after_import("trl", wait_for_models)
