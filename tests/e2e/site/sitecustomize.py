"""Loaded by Python itself at the start of every process of a run: `runner.py` puts this folder on PYTHONPATH.

It does four things, each once the module concerned has been imported by somebody else, never earlier:

- where there is no CUDA, it answers the questions about a GPU that notebooks print (name, size, free memory);
- it writes what the trainer logs at each step, unrounded, to "$STEPS_FOLDER/RANK.jsonl";
- with CUDA_IS_CPU=1, and only then, tensors sent to "cuda" stay on the CPU where there is no CUDA;
- it gives gloo's threads a moment behind the end of a process group.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from rehearsal_stage import gloo, hooks

if TYPE_CHECKING:
    from types import ModuleType

MEMORY = 16 * 2**30


def answer_gpu_queries(torch: ModuleType) -> None:
    """Stand in for `torch.cuda`'s queries about GPU 0; those that work without a GPU are left alone."""
    if torch.cuda.is_available():
        return
    gpu = SimpleNamespace(name="No GPU", total_memory=MEMORY, major=8, minor=0, multi_processor_count=1)
    answers = {
        "get_device_properties": gpu,
        "get_device_name": gpu.name,
        "mem_get_info": (MEMORY, MEMORY),
        "current_device": int(os.environ.get("LOCAL_RANK", 0)),
        "reset_peak_memory_stats": None,
    }
    for name, answer in answers.items():
        setattr(torch.cuda, name, lambda *_, answer=answer: answer)
    if os.environ.get("CUDA_IS_CPU") == "1":
        keep_on_cpu(torch)


def keep_on_cpu(torch: ModuleType) -> None:
    """Let `.to("cuda")` and `.cuda()` of tensors, and of modules that hold them, leave them on the CPU.

    What is loaded does too: as several processes on CPUs, transformers asks for "cpu:0", which `torch.load` refuses.
    """
    original, load = torch.Tensor.to, torch.load

    def here(value: Any) -> Any:
        return "cpu" if isinstance(value, (str, torch.device)) and str(value).startswith("cuda") else value

    def to(self: Any, *args: Any, **kwargs: Any) -> Any:
        return original(self, *map(here, args), **{name: here(value) for name, value in kwargs.items()})

    setattr(torch, "load", lambda *args, map_location=None, **given: load(*args, map_location="cpu", **given))  # noqa: B010
    torch.Tensor.to = to
    torch.Tensor.cuda = lambda self, *_, **__: self


def record_steps(callbacks: ModuleType) -> None:
    """Write down what `Trainer.log` hands to its callbacks, with the step it belongs to."""
    handler = callbacks.CallbackHandler
    original = handler.on_log
    file = Path(os.environ["STEPS_FOLDER"], f"{os.environ.get('RANK', 0)}.jsonl")

    def on_log(self: Any, args: Any, state: Any, control: Any, logs: dict[str, Any], **kwargs: Any) -> Any:
        with file.open("a") as lines:
            lines.write(json.dumps({"step": state.global_step, **logs}, default=str) + "\n")
        return original(self, args, state, control, logs, **kwargs)

    handler.on_log = on_log


hooks.after_import("torch", answer_gpu_queries)
hooks.after_import("torch.distributed.distributed_c10d", gloo.pause_after_destroy)
hooks.after_import("transformers.trainer_callback", record_steps)
