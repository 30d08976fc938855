"""Settings tried on one training, one after another in the same processes: `python -m benchmarks.gpu.trials ...`.

The model is loaded once and its adapters are set back before each trial, so that trials differ by their setting alone.
Started with `accelerate launch` it trains on several GPUs. Written down by each process: seconds of the timed steps,
losses, peak memory, and the processor's seconds in each part of a step; of some trials a profile of two more steps.
"""

from __future__ import annotations

import os

os.environ["UNSLOTH_DISABLE_TRAINER_PATCHING"] = "1"
os.environ["UNSLOTH_NO_CUDA_EXTENSIONS"] = "1"

import argparse
import gc
import json
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

import torch

RANK, LOCAL_RANK = int(os.environ.get("RANK", 0)), int(os.environ.get("LOCAL_RANK", 0))
if torch.cuda.is_available():
    torch.cuda.set_device(LOCAL_RANK)

import unsloth  # noqa: E402  (before transformers and trl)
from datasets import load_dataset  # noqa: E402
from transformers import TrainerCallback  # noqa: E402
from trl import SFTConfig, SFTTrainer  # noqa: E402

WARM_UP, TIMED, PROFILED = 4, 8, 2


@dataclass(frozen=True)
class Trial:
    """One setting: fields of SFTConfig and of DDP, gradient checkpointing or none, and what else is done before."""

    fields: dict[str, Any] = field(default_factory=dict)
    ddp: dict[str, Any] = field(default_factory=dict)
    checkpointing: bool = False
    before: Callable[[], None] | None = None
    after: Callable[[], None] | None = None
    synchronized: bool = True  # False: gradients are never summed over processes, to see what that costs
    profiled: bool = False


def expandable(on: bool) -> Callable[[], None]:
    return lambda: torch.cuda.memory._set_allocator_settings(f"expandable_segments:{on}")


TRIALS = {
    "warm-up": Trial(),
    "checkpointing": Trial(checkpointing=True, profiled=True),
    "base": Trial(profiled=True),
    "base again": Trial(),
    "gradient_as_bucket_view": Trial(ddp={"gradient_as_bucket_view": True}),
    "static_graph": Trial(ddp={"static_graph": True}),
    "bucket_cap_mb = 200": Trial(ddp={"bucket_cap_mb": 200}),
    "broadcast_buffers = False": Trial(ddp={"broadcast_buffers": False}),
    "2 workers": Trial(fields={"dataloader_num_workers": 2}),
    "adamw_torch_fused": Trial(fields={"optim": "adamw_torch_fused"}),
    "no clipping": Trial(fields={"max_grad_norm": 0.0}),
    "log every 10 steps": Trial(fields={"logging_steps": 10}),
    "own mean of tokens": Trial(fields={"average_tokens_across_devices": False}),
    "gradients not summed": Trial(synchronized=False),
    "no garbage collection": Trial(before=gc.disable, after=gc.enable),
    "expandable_segments": Trial(before=expandable(True), after=expandable(False)),
    "packing": Trial(fields={"packing": True}),
}


class Clock(TrainerCallback):  # type: ignore[misc]
    """Takes the time after each step, once the GPU has done it, and profiles the last ones."""

    def __init__(self, trial: Trial) -> None:
        self.profiler = torch.profiler.profile() if trial.profiled else None
        self.at: list[float] = []

    def on_step_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if state.global_step == WARM_UP:
            self.take()
        if self.profiler and state.global_step == WARM_UP + TIMED:
            self.profiler.__enter__()

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if WARM_UP < state.global_step <= WARM_UP + TIMED:
            self.take()
        if self.profiler and state.global_step == state.max_steps:
            torch.cuda.synchronize()
            self.profiler.__exit__(None, None, None)

    def take(self) -> None:
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        self.at.append(time.perf_counter())


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


def train(name: str, model: Any, tokenizer: Any, data: Any, options: argparse.Namespace) -> dict[str, Any]:
    """One trial."""
    trial = TRIALS[name]
    clock, spent = Clock(trial), defaultdict[str, float](float)
    if trial.before:
        trial.before()
    fields = {
        "dataset_text_field": "text",
        "max_length": options.length,
        "per_device_train_batch_size": options.rows,
        "gradient_accumulation_steps": options.accumulation,
        "max_steps": WARM_UP + TIMED + PROFILED * trial.profiled,
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
    with parts_of(trainer, spent):
        trainer.train()
    if trial.after:
        trial.after()
    seconds = [round(later - earlier, 4) for earlier, later in zip(clock.at, clock.at[1:], strict=False)]
    steps = trainer.state.global_step
    return {
        "trial": name,
        "seconds": seconds,
        "median": round(median(seconds), 4),
        "losses": [log["loss"] for log in trainer.state.log_history if "loss" in log],
        "peak": torch.cuda.max_memory_allocated() if torch.cuda.is_available() else 0,
        "reserved": torch.cuda.max_memory_reserved() if torch.cuda.is_available() else 0,
        "milliseconds": {part: round(1e3 * total / steps, 1) for part, total in spent.items()},
        **({"profile": profile(clock.profiler)} if clock.profiler else {}),
    }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", default="bench/Llama-3B")
    parser.add_argument("--data", default="bench/books")
    parser.add_argument("--length", type=int, default=450)
    parser.add_argument("--rows", type=int, required=True)
    parser.add_argument("--accumulation", type=int, default=1)
    parser.add_argument("--trials", nargs="+", choices=TRIALS, required=True, metavar="TRIAL")
    parser.add_argument("--wait-for", type=Path, help="start training when this file is there")
    parser.add_argument("--out", type=Path, required=True)
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
    data = load_dataset(options.data, split="train[:600]").map(lambda row: {"text": row["text"] + tokenizer.eos_token})
    trained = {name: weight for name, weight in model.named_parameters() if weight.requires_grad}
    at_first = {name: weight.detach().clone() for name, weight in trained.items()}
    while options.wait_for and not options.wait_for.exists():
        time.sleep(0.1)
    found = []
    for name in options.trials:
        for each, weight in trained.items():
            weight.data.copy_(at_first[each])
        try:
            found.append(train(name, model, tokenizer, data, options))
        except Exception as error:
            if torch.distributed.is_initialized():
                raise  # the other processes would wait
            found.append({"trial": name, "error": repr(error)[:500]})
        about = {"rows": options.rows, "accumulation": options.accumulation, "rank": RANK, "data": options.data}
        options.out.with_suffix(f".{RANK}.json").write_text(json.dumps({**about, "trials": found}) + "\n")
        if RANK == 0:
            print(name, found[-1].get("median"), found[-1].get("milliseconds"), found[-1].get("error"), flush=True)


if __name__ == "__main__":
    main()
