"""Loaded by Python itself at the start of every process of a measured run: `runner.py` puts this folder on PYTHONPATH.

It writes down what the process does, one JSON object a line in "$BENCH_FOLDER/RANK.jsonl", and changes nothing, unless
$BENCH_NUDGE asks for it, or $BENCH_CACHE gives an engine the bytes of its cache: vLLM measures the GPU to find them,
which fails while other jobs take and free memory there.

Events of a training, in order: "begin" with types and a hash of the weights to train; "step" for each logged step, with
the time after the GPU has finished it; "saved" for each checkpoint; "end" with the peak memory, the indices of the rows
that were fetched, the number of micro-batches and a hash of the trained weights.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rehearsal_stage import hooks

if TYPE_CHECKING:
    from types import ModuleType

FILE = Path(os.environ["BENCH_FOLDER"], f"{os.environ.get('RANK', 0)}.jsonl")
NUDGE = float(os.environ.get("BENCH_NUDGE", 0))
fetched: dict[int, list[list[int]]] = {}  # data set (its id) -> batches of indices, in the order of their first use
micro_batches = 0


def write(event: str, **facts: Any) -> None:
    with FILE.open("a") as lines:
        lines.write(json.dumps({"event": event, "time": time.time(), **facts}) + "\n")


def hash_of(model: Any) -> str:
    """A hash of every weight that is trained."""
    import torch

    digest = hashlib.sha256()
    for name, weight in sorted(model.named_parameters()):
        if weight.requires_grad:
            digest.update(name.encode())
            digest.update(weight.detach().contiguous().cpu().view(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()[:16]


def dtypes(model: Any) -> list[str]:
    """The types of the weights that are trained."""
    return sorted({str(weight.dtype) for weight in model.parameters() if weight.requires_grad})


def nudge(model: Any) -> None:
    """Change every trained weight by a few parts in 10**7, about the rounding error of a sum in float32."""
    import torch

    with torch.no_grad():
        for weight in model.parameters():
            if weight.requires_grad:
                weight.mul_(1 + NUDGE)


def record_training(callbacks: ModuleType) -> None:
    """Follow the events that a trainer hands to its callbacks."""
    handler = callbacks.CallbackHandler
    original = handler.call_event

    def call_event(self: Any, event: str, args: Any, state: Any, control: Any, **kwargs: Any) -> Any:
        global micro_batches
        logs = kwargs.get("logs") or {}
        if event == "on_train_begin":
            micro_batches = 0
            fetched.clear()
            sizes = {"per_device": args.per_device_train_batch_size, "accumulation": args.gradient_accumulation_steps}
            start = time.time()
            weights = {"weights": hash_of(self.model), "dtypes": dtypes(self.model)}
            looked = time.time() - start
            write("begin", steps=state.max_steps, done=state.global_step, looked=looked, **weights, **sizes)
        elif event == "on_step_begin" and NUDGE and state.global_step == 2:
            nudge(self.model)
        elif event in ("on_substep_end", "on_step_end"):
            micro_batches += 1
        elif event == "on_log" and "loss" in logs:
            kept = {name: float(logs[name]) for name in ("loss", "grad_norm", "reward", "reward_std") if name in logs}
            write("step", step=state.global_step, **kept)
        elif event == "on_log" and "eval_loss" in logs:
            write("evaluated", step=state.global_step, loss=float(logs["eval_loss"]))
        elif event == "on_save":
            write("saved", step=state.global_step)
        elif event == "on_train_end":
            end_of_training(self.model)
        return original(self, event, args, state, control, **kwargs)

    handler.call_event = call_event


def end_of_training(model: Any) -> None:
    import torch

    start = time.time()
    on_gpu = torch.cuda.is_available()
    write(
        "end",
        weights=hash_of(model),
        memory=torch.cuda.max_memory_allocated() if on_gpu else 0,
        reserved=torch.cuda.max_memory_reserved() if on_gpu else 0,
        by_gpu=[torch.cuda.max_memory_allocated(gpu) for gpu in range(torch.cuda.device_count())],
        micro_batches=micro_batches,
        fetched=next(iter(fetched.values()), []),
        looked=time.time() - start,
    )


def give_cache(module: ModuleType) -> None:
    """Tell engines how much memory to take for keys and values, where that is given."""
    original = module.LLM.__init__

    @functools.wraps(original)
    def start(self: Any, *args: Any, **kwargs: Any) -> None:
        original(self, *args, **{"kv_cache_memory_bytes": int(os.environ["BENCH_CACHE"]), **kwargs})

    if "BENCH_CACHE" in os.environ:
        module.LLM.__init__ = start


def record_fetches(module: ModuleType) -> None:
    """Follow which rows a data loader takes from its data set."""
    fetcher = module._MapDatasetFetcher
    original = fetcher.fetch

    def fetch(self: Any, index: Any) -> Any:
        fetched.setdefault(id(self.dataset), []).append([int(i) for i in index] if isinstance(index, list) else [index])
        return original(self, index)

    fetcher.fetch = fetch


hooks.after_import("transformers.trainer_callback", record_training)
hooks.after_import("torch.utils.data._utils.fetch", record_fetches)
hooks.after_import("vllm.entrypoints.llm", give_cache)
