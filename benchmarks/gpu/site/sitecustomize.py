"""Python itself loads this at the start of every process of a measured run: `runner.py` puts this folder on PYTHONPATH.

It records what the process does in "$BENCH_FOLDER/RANK.jsonl", one JSON object a line. It ends a training after
$BENCH_STEPS steps, if that is not 0, and changes nothing else.

Events of a training, in order: "begin"; "step" for each logged step, with the time after the GPU has finished it; "end"
with the peak memory, the indices of the rows that were fetched, the number of micro-batches and a hash of the weights.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nb2ddp.rehearsal.stage import hooks

if TYPE_CHECKING:
    from types import ModuleType

FILE = Path(os.environ["BENCH_FOLDER"], f"{os.environ.get('RANK', 0)}.jsonl")
STEPS = int(os.environ["BENCH_STEPS"])
fetched: dict[int, list[list[int]]] = {}  # data set (its id) -> batches of indices, in the order of their first use
micro_batches = 0


def write(event: str, **facts: Any) -> None:
    with FILE.open("a") as lines:
        lines.write(json.dumps({"event": event, "time": time.time(), **facts}) + "\n")


def hash_of(model: Any) -> str:
    """Return a hash of all trained weights."""
    import torch

    digest = hashlib.sha256()
    for name, weight in sorted(model.named_parameters()):
        if weight.requires_grad:
            digest.update(name.encode())
            digest.update(weight.detach().contiguous().cpu().view(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()[:16]


def record_training(callbacks: ModuleType) -> None:
    """Record the events that a trainer passes to its callbacks."""
    handler = callbacks.CallbackHandler
    original = handler.call_event

    def call_event(self: Any, event: str, args: Any, state: Any, control: Any, **kwargs: Any) -> Any:
        global micro_batches
        logs = kwargs.get("logs") or {}
        if event == "on_train_begin":
            micro_batches = 0
            fetched.clear()
            sizes = {"per_device": args.per_device_train_batch_size, "accumulation": args.gradient_accumulation_steps}
            write("begin", steps=state.max_steps, **sizes)
        elif event in ("on_substep_end", "on_step_end"):
            micro_batches += 1
        elif event == "on_log" and "loss" in logs:
            kept = {name: float(logs[name]) for name in ("loss", "grad_norm", "reward", "reward_std") if name in logs}
            write("step", step=state.global_step, **kept)
        elif event == "on_train_end":
            end_of_training(self.model)
        control = original(self, event, args, state, control, **kwargs)
        if event == "on_step_end" and state.global_step == STEPS:
            control.should_training_stop = True
        return control

    handler.call_event = call_event


def end_of_training(model: Any) -> None:
    import torch

    on_gpu = torch.cuda.is_available()
    write(
        "end",
        weights=hash_of(model),
        memory=torch.cuda.max_memory_allocated() if on_gpu else 0,
        micro_batches=micro_batches,
        fetched=next(iter(fetched.values()), []),
    )


def record_fetches(module: ModuleType) -> None:
    """Record which rows a data loader takes from its data set."""
    fetcher = module._MapDatasetFetcher
    original = fetcher.fetch

    def fetch(self: Any, index: Any) -> Any:
        fetched.setdefault(id(self.dataset), []).append([int(i) for i in index] if isinstance(index, list) else [index])
        return original(self, index)

    fetcher.fetch = fetch


hooks.after_import("transformers.trainer_callback", record_training)
hooks.after_import("torch.utils.data._utils.fetch", record_fetches)
