"""Settings tried on one training, one after another in the same processes: `python -m benchmarks.gpu.trials ...`.

The model is loaded once and its adapters are set back before each trial, so that trials differ by their setting alone.
Each folder holds a run of `side_by_side.py` that names its trial; before its timed steps it waits for its turn. Started
with `torchrun` it trains on several GPUs. Written down by each process: seconds of the timed steps, losses, peak
memory, the processor's seconds in each part of a step and of the whole process; of some a profile of two more steps.
"""

from __future__ import annotations

import os

os.environ["UNSLOTH_DISABLE_TRAINER_PATCHING"] = "1"
os.environ["UNSLOTH_NO_CUDA_EXTENSIONS"] = "1"

import argparse
import gc
import json
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

import torch

RANK, LOCAL_RANK = int(os.environ.get("RANK", 0)), int(os.environ.get("LOCAL_RANK", 0))
if torch.cuda.is_available():
    torch.cuda.set_device(LOCAL_RANK)

import sitecustomize  # type: ignore[import-not-found]  # noqa: E402  (the one of `gated`)
import unsloth  # noqa: E402  (before transformers and trl)
from datasets import load_dataset  # noqa: E402
from transformers import TrainerCallback  # noqa: E402
from trl import SFTConfig, SFTTrainer  # noqa: E402

WARM_UP, TIMED, PROFILED = 4, 10, 2


@dataclass(frozen=True)
class Trial:
    """One setting: fields of SFTConfig and of DDP, gradient checkpointing or none, and what else is done before."""

    fields: dict[str, Any] = field(default_factory=dict)
    ddp: dict[str, Any] = field(default_factory=dict)
    checkpointing: bool = False
    around: Callable[[Any], AbstractContextManager[None]] | None = None  # what is done to the model while it trains
    synchronized: bool = True  # False: gradients are never summed over processes, to see what that costs
    profiled: bool = False


@contextmanager
def expandable(_: Any) -> Iterator[None]:
    torch.cuda.memory._set_allocator_settings("expandable_segments:True")
    yield
    torch.cuda.memory._set_allocator_settings("expandable_segments:False")


@contextmanager
def no_collection(_: Any) -> Iterator[None]:
    gc.disable()
    yield
    gc.enable()


@contextmanager
def own_cores(_: Any) -> Iterator[None]:
    """Give this process, with all its threads, a share of the cores for itself."""
    count = os.cpu_count() or 1
    share = count // int(os.environ.get("LOCAL_WORLD_SIZE", 1))
    set_cores(range(LOCAL_RANK * share, (LOCAL_RANK + 1) * share))
    yield
    set_cores(range(count))


def set_cores(cores: range) -> None:
    for thread in Path("/proc/self/task").iterdir():
        os.sched_setaffinity(int(thread.name), cores)


@contextmanager
def one_thread(_: Any) -> Iterator[None]:
    """Run the backward pass in the thread that asks for it, not in one of the GPU's."""
    with torch.autograd.set_multithreading_enabled(False):
        yield


@contextmanager
def threads(_: Any) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(16)
    yield
    torch.set_num_threads(before)


@contextmanager
def no_guard(_: Any) -> Iterator[None]:
    """Let Unsloth launch kernels as it does where it sees one GPU: without naming the GPU each time."""
    found = [module.__dict__ for name, module in sys.modules.items() if name.startswith("unsloth.kernels")]
    kept = [(names, names["torch_gpu_device"]) for names in found if "torch_gpu_device" in names]
    nothing = nullcontext()
    for names, _ in kept:
        names["torch_gpu_device"] = lambda device: nothing
    yield
    for names, each in kept:
        names["torch_gpu_device"] = each


def note_call(model: Any) -> None:
    """Keep what the first layer is called with, for `graphs`."""

    def keep(_: Any, args: Any, kwargs: Any) -> None:
        SEEN[:] = [args, kwargs]

    model.get_base_model().model.layers[0].register_forward_pre_hook(keep, with_kwargs=True)


@contextmanager
def graphs(model: Any) -> Iterator[None]:
    """Capture each layer, forward and backward, as CUDA graphs; all batches have the same rows' lengths."""
    layers = model.get_base_model().model.layers
    (hidden, *rest), kwargs = SEEN
    kept = [layer.forward for layer in layers]

    class Body(torch.nn.Module):  # type: ignore[misc]
        def __init__(self, layer: Any) -> None:
            super().__init__()
            self.layer, self.original = layer, layer.forward

        def forward(self, hidden: Any) -> Any:
            return self.original(hidden, *rest, **kwargs)[0]

    model.train()
    bodies = tuple(Body(layer) for layer in layers)
    samples = tuple((torch.randn_like(hidden).requires_grad_(),) for _ in bodies)
    with torch.autocast("cuda", torch.bfloat16, cache_enabled=False):
        graphed = torch.cuda.make_graphed_callables(bodies, samples)
    for layer, captured in zip(layers, graphed, strict=True):
        layer.forward = lambda hidden_states, *_, captured=captured, **__: (captured(hidden_states),)
    try:
        yield
    finally:
        for layer, original in zip(layers, kept, strict=True):
            layer.forward = original


SEEN: list[Any] = []  # the arguments of the first layer
TRIALS = {
    "warm-up": Trial(),
    "checkpointing": Trial(checkpointing=True, profiled=True),
    "base": Trial(),
    "base, profiled": Trial(profiled=True),
    "base again": Trial(),
    "base, on both GPUs at once": Trial(),
    "gradient_as_bucket_view": Trial(ddp={"gradient_as_bucket_view": True}),
    "static_graph": Trial(ddp={"static_graph": True}),
    "bucket_cap_mb = 200": Trial(ddp={"bucket_cap_mb": 200}),
    "broadcast_buffers = False": Trial(ddp={"broadcast_buffers": False}),
    "2 workers": Trial(fields={"dataloader_num_workers": 2}),
    "adamw_torch_fused": Trial(fields={"optim": "adamw_torch_fused"}),
    "no clipping": Trial(fields={"max_grad_norm": 0.0}),
    "log every 20 steps": Trial(fields={"logging_steps": 20}),
    "own mean of tokens": Trial(fields={"average_tokens_across_devices": False}),
    "own mean, log every 20 steps": Trial(fields={"average_tokens_across_devices": False, "logging_steps": 20}),
    "gradients not summed": Trial(synchronized=False),
    "no garbage collection": Trial(around=no_collection),
    "expandable_segments": Trial(around=expandable),
    "cores of its own": Trial(around=own_cores),
    "backward in one thread": Trial(around=one_thread),
    "16 threads": Trial(around=threads),
    "GPU not named at each launch": Trial(around=no_guard),
    "CUDA graphs": Trial(around=graphs),
}


class Clock(TrainerCallback):  # type: ignore[misc]
    """Takes the time of each step, waits for its turn before those that are timed, and profiles the last ones.

    The GPU is waited for before and after all timed steps alone: what runs ahead may do so.
    """

    def __init__(self, trial: Trial, folder: Path, spent: dict[str, float]) -> None:
        self.profiler = torch.profiler.profile() if trial.profiled else None
        self.folder, self.spent = folder, spent
        self.at: list[float] = []
        self.parts: dict[str, float] = {}

    def on_step_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if state.global_step == WARM_UP:
            sitecustomize.wait_for_turn(self.folder)
            self.spent.clear()
            self.spent["whole process"] = -time.process_time()
            self.at.append(sitecustomize.synchronized())
        elif WARM_UP < state.global_step < WARM_UP + TIMED:
            self.at.append(time.perf_counter())
        elif state.global_step == WARM_UP + TIMED:
            self.at.append(sitecustomize.synchronized())
            self.spent["whole process"] += time.process_time()
            self.parts = {part: round(1e3 * seconds / TIMED, 1) for part, seconds in self.spent.items()}
            if self.profiler:
                self.profiler.__enter__()

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if self.profiler and state.global_step == state.max_steps:
            torch.cuda.synchronize()
            self.profiler.__exit__(None, None, None)


@contextmanager
def parts_of(trainer: Any, spent: dict[str, float]) -> Iterator[None]:
    """Add up the seconds that the processor spends in each part of the steps."""
    accelerator = trainer.accelerator
    places = [
        (trainer, "get_batch_samples", "rows"),
        (trainer, "training_step", "forward and backward"),
        (accelerator, "backward", "of it backward"),
        (accelerator, "clip_grad_norm_", "clipping"),
        (trainer, "_maybe_log_save_evaluate", "logging"),
    ]
    create = trainer.create_optimizer

    def timed(function: Callable[..., Any], part: str) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            start = time.perf_counter()
            try:
                return function(*args, **kwargs)
            finally:
                spent[part] += time.perf_counter() - start

        return call

    def create_optimizer(*args: Any, **kwargs: Any) -> Any:
        made = create(*args, **kwargs)
        made.step = timed(made.step, "optimizer")
        return made

    trainer.create_optimizer = create_optimizer
    for owner, name, part in places:
        setattr(owner, name, timed(getattr(owner, name), part))
    yield


def busy(profiler: Any) -> dict[str, Any]:
    """What the GPU and the processor did in the profiled steps, in milliseconds of one step."""
    kernels = sorted(
        (event.time_range.start, event.time_range.end, event.name)
        for event in profiler.events()
        if event.device_type == torch.autograd.DeviceType.CUDA
    )
    union, end = 0.0, 0.0
    for start, stop, _ in kernels:
        union += max(0.0, stop - max(start, end))
        end = max(end, stop)
    names: dict[str, list[float]] = defaultdict(lambda: [0, 0.0])
    for start, stop, name in kernels:
        names[name[:90]][0] += 1
        names[name[:90]][1] += (stop - start) / 1e3
    rows = [(each.key[:90], each.count, round(each.self_cpu_time_total / 1e3, 1)) for each in profiler.key_averages()]
    span = (kernels[-1][1] - kernels[0][0]) / 1e3 if kernels else 0.0
    waiting = sum(spent for name, (_, spent) in names.items() if "nccl" in name.lower())
    return {
        "span": round(span / PROFILED, 1),
        "gpu_busy": round(union / 1e3 / PROFILED, 1),
        "nccl": round(waiting / PROFILED, 1),
        "kernels": len(kernels) / PROFILED,
        "by_kernel": sorted(((n, c, round(s, 1)) for n, (c, s) in names.items()), key=lambda row: -row[2])[:40],
        "by_call": sorted(rows, key=lambda row: -row[2])[:40],
    }


def profile(profiler: Any) -> dict[str, Any]:
    """`busy`, or why there is none: a profile that cannot be read must not end the other processes."""
    try:
        return busy(profiler)
    except Exception as error:
        return {"error": repr(error)[:500]}


def train(folder: Path, model: Any, tokenizer: Any, data: Any, options: argparse.Namespace) -> dict[str, Any]:
    """One trial."""
    name = json.loads((folder / "run.json").read_text())["name"]
    trial, spent = TRIALS[name], defaultdict[str, float](float)
    clock = Clock(trial, folder, spent)
    fields = {
        "dataset_text_field": "text",
        "max_length": options.length,
        "per_device_train_batch_size": options.rows,
        "gradient_accumulation_steps": options.accumulation,
        "max_steps": WARM_UP + TIMED + (PROFILED if trial.profiled else 1),
        "warmup_steps": 5,
        "learning_rate": 2e-4,
        "logging_steps": 1,
        "optim": "adamw_8bit" if torch.cuda.is_available() else "adamw_torch",
        "weight_decay": 0.01,
        "lr_scheduler_type": "linear",
        "seed": 3407,
        "output_dir": "outputs",
        "save_strategy": "no",
        "report_to": "none",
        "ddp_find_unused_parameters": False,
        "average_tokens_across_devices": True,
    }
    trainer = SFTTrainer(
        model=model,
        processing_class=tokenizer,
        train_dataset=data,
        args=SFTConfig(**{**fields, **trial.fields}),
        callbacks=[clock],
    )
    model._unsloth_gradient_checkpointing = trial.checkpointing and "unsloth"
    trainer.args.gradient_checkpointing = trial.checkpointing
    if trainer.accelerator.ddp_handler is not None:
        for key, value in trial.ddp.items():
            setattr(trainer.accelerator.ddp_handler, key, value)
    if not trial.synchronized:
        step = trainer.training_step

        def alone(wrapped: Any, *args: Any, **kwargs: Any) -> Any:
            with wrapped.no_sync():
                return step(wrapped, *args, **kwargs)

        trainer.training_step = alone
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    with trial.around(model) if trial.around else nullcontext(), parts_of(trainer, spent):
        trainer.train()
    seconds = [round(later - earlier, 4) for earlier, later in zip(clock.at, clock.at[1:], strict=False)]
    return {
        "trial": name,
        "seconds": seconds,
        "median": round(median(seconds), 4),
        "mean": round((clock.at[-1] - clock.at[0]) / TIMED, 4),
        "losses": [log["loss"] for log in trainer.state.log_history if "loss" in log],
        "peak": torch.cuda.max_memory_allocated() if torch.cuda.is_available() else 0,
        "reserved": torch.cuda.max_memory_reserved() if torch.cuda.is_available() else 0,
        "milliseconds": clock.parts,
        **({"profile": profile(clock.profiler)} if clock.profiler else {}),
    }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", default="bench/Llama-3B")
    parser.add_argument("--data", default="bench/books")
    parser.add_argument("--length", type=int, default=450)
    parser.add_argument("--rows", type=int, required=True)
    parser.add_argument("--accumulation", type=int, default=1)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--folders", type=Path, nargs="+", required=True, help="of runs, in their order")
    options = parser.parse_args()
    model, tokenizer = unsloth.FastLanguageModel.from_pretrained(
        options.model,
        max_seq_length=2048,
        load_in_4bit=torch.cuda.is_available(),
        device_map=LOCAL_RANK if torch.cuda.is_available() else None,
    )
    model = unsloth.FastLanguageModel.get_peft_model(
        model,
        r=16,
        target_modules=["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"],
        lora_alpha=16,
        use_gradient_checkpointing="unsloth",
        random_state=3407,
    )
    note_call(model)
    data = load_dataset(options.data, split="train[:600]").map(lambda row: {"text": row["text"] + tokenizer.eos_token})
    trained = {name: weight for name, weight in model.named_parameters() if weight.requires_grad}
    at_first = {name: weight.detach().clone() for name, weight in trained.items()}
    found = []
    for folder in options.folders:
        for each, weight in trained.items():
            weight.data.copy_(at_first[each])
        try:
            found.append(train(folder, model, tokenizer, data, options))
        except Exception as error:
            found.append({"trial": folder.name, "error": repr(error)[:1000]})
        about = {"rows": options.rows, "accumulation": options.accumulation, "rank": RANK, "data": options.data}
        options.out.with_suffix(f".{RANK}.json").write_text(json.dumps({**about, "trials": found}) + "\n")
        print(RANK, folder.name, [found[-1].get(key) for key in ("mean", "milliseconds", "error")], flush=True)
        (folder / f"over-{RANK}").touch()
        while not (folder / "next").exists():
            time.sleep(0.02)


if __name__ == "__main__":
    main()
