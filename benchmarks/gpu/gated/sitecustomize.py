"""Loaded by Python itself at the start of each process of a run that `side_by_side.py` starts.

All runs start at once; each trains its first steps, says that it is ready, and waits until its turn comes. So the
steps that are timed have their GPUs and the processors for themselves, while starting takes the time of one run. Runs
that need much memory ($GATE_EARLY) wait before they load their model, and again before their first step.
"""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from after_import import call_after_import

if TYPE_CHECKING:
    from types import ModuleType

FOLDER = Path(os.environ["GATE_FOLDER"])
WARM_UP = int(os.environ["GATE_WARM_UP"])  # steps before the wait
EARLY = os.environ.get("GATE_EARLY") == "1"
PROFILED = int(os.environ.get("GATE_PROFILED", 0))  # steps after the timed ones, under torch's profiler
RANK = int(os.environ.get("RANK", 0))
facts: dict[str, Any] = {"steps": []}
profiler: Any = None


def wait_for_turn() -> None:
    import torch

    if torch.cuda.is_available():
        torch.cuda.empty_cache()  # others on this GPU are timed meanwhile
    (FOLDER / f"ready-{RANK}").touch()
    wait_for("go")


def wait_for(name: str) -> None:
    while not (FOLDER / name).exists():
        time.sleep(0.02)


def synchronized() -> float:
    """The time when the GPU has done what it was given."""
    import torch

    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return time.perf_counter()


def profile(steps_done: int, steps: int) -> None:
    """Switch the profiler on before the last steps, and write its table down after them."""
    global profiler
    from torch import profiler as torch_profiler

    if steps_done == steps - PROFILED and profiler is None:
        profiler = torch_profiler.profile()
        profiler.__enter__()
    elif steps_done == steps and profiler is not None:
        profiler.__exit__(None, None, None)
        averages = profiler.key_averages()
        rows = [
            (e.key, e.count, e.self_cpu_time_total / 1e3, e.self_device_time_total / 1e3, str(e.device_type))
            for e in averages
        ]
        facts["profile"] = sorted(rows, key=lambda row: -max(row[2], row[3]))[:120]


def end(args: Any, model: Any) -> None:
    """Write down what was measured, and leave: what comes after training is not asked for."""
    import torch

    on_gpu = torch.cuda.is_available()
    facts.update(
        per_device=args.per_device_train_batch_size,
        accumulation=args.gradient_accumulation_steps,
        memory=torch.cuda.max_memory_allocated() if on_gpu else 0,
        reserved=torch.cuda.max_memory_reserved() if on_gpu else 0,
        total=torch.cuda.get_device_properties(0).total_memory if on_gpu else 0,
        gpu=torch.cuda.get_device_name(0) if on_gpu else "none",
    )
    (FOLDER / f"{RANK}.json").write_text(json.dumps(facts))
    os._exit(0)


def follow(callbacks: ModuleType) -> None:
    """Act on the events that a trainer hands to its callbacks."""
    handler = callbacks.CallbackHandler
    original = handler.call_event

    def call_event(self: Any, event: str, args: Any, state: Any, control: Any, **kwargs: Any) -> Any:
        if event == ("on_init_end" if EARLY else "on_step_begin") and state.global_step == (0 if EARLY else WARM_UP):
            wait_for_turn()
        if event == "on_step_begin" and state.global_step == WARM_UP:
            facts["began"] = synchronized()
        if event == "on_step_begin" and PROFILED:
            profile(state.global_step, state.max_steps)
        logs = kwargs.get("logs") or {}
        if event == "on_log" and "loss" in logs:
            seen = {name: float(logs[name]) for name in ("loss", "grad_norm") if name in logs}
            facts["steps"].append({"at": synchronized(), **seen})
        if event == "on_train_end":
            if PROFILED:
                profile(state.global_step, state.max_steps)
            end(args, self.model)
        return original(self, event, args, state, control, **kwargs)

    handler.call_event = call_event


call_after_import(
    {"transformers.trainer_callback": follow, **({"unsloth": lambda _: wait_for("load")} if EARLY else {})}
)
