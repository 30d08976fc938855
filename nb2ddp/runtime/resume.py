"""Resume an interrupted training from its last checkpoint."""

import itertools
import json
import math
import os
import shutil
import signal
import sys
import time
from pathlib import Path
from typing import Any

import torch
from accelerate import PartialState
from accelerate.utils import broadcast_object_list, reduce
from transformers import TrainerCallback

from nb2ddp.runtime.process import is_main_process, world_size

KEPT = 2  # checkpoints by time on the disk: the last one, and the one before it
training_numbers = itertools.count(1)  # each training of the script has its own checkpoints


def last_checkpoint(trainer: Any, minutes: float = 10) -> str | None:
    """Return the last complete checkpoint of this training, or None if there is none.

    From here on the training saves itself every `minutes`, at SIGTERM, and at its end.
    """
    args, number = trainer.args, next(training_numbers)
    if number > 1:
        args.output_dir = os.path.join(args.output_dir, f"training-{number}")
    processes = 1 if args.accelerator_config.split_batches else world_size  # each takes such a batch
    samples = trainer._train_batch_size * args.gradient_accumulation_steps * processes
    length = args.max_steps if args.max_steps > 0 else f"{args.num_train_epochs} epochs"
    training = {"script": Path(sys.argv[0]).name, "training": number, "samples": samples, "steps": length}
    args.save_only_model = False  # save the optimizer and the random numbers too
    if args.save_total_limit:
        args.save_total_limit += KEPT  # beside those that the notebook keeps
    for old in [old for old in trainer.callback_handler.callbacks if type(old).__name__ == "SaveByTime"]:
        trainer.remove_callback(old)  # of an earlier training of this trainer
    trainer.add_callback(save_by_time(trainer, training, 60 * minutes))
    newest = [whole_checkpoint(trainer, training) if is_main_process else None]
    broadcast_object_list(newest)
    checkpoint = newest[0]
    if checkpoint and json.loads(Path(checkpoint, "whole.json").read_text())["ended"]:
        args.num_train_epochs, args.max_steps = 0, -1  # the training is finished: only load its weights
    return checkpoint


def whole_checkpoint(trainer: Any, training: dict[str, Any]) -> str | None:
    """Return the newest complete checkpoint of this training, or None. Only the main process calls this."""
    for path, written in checkpoints(trainer.args.output_dir):
        other = {name: written.get(name) for name, value in training.items() if written.get(name) != value}
        if not written:
            print(f"{path} was not saved by this script: skipped", file=sys.stderr)
        elif other:
            print(f"{path} belongs to another training ({other}): skipped", file=sys.stderr)
        elif "files" not in written:
            print(f"{path} is half-written: removed", file=sys.stderr)
            shutil.rmtree(path)
        elif not written["files"].items() <= sizes(path).items():
            print(f"{path} is incomplete: skipped", file=sys.stderr)
        elif getattr(trainer.model, "vllm_engine", None) is not None and written["processes"] != world_size:
            print(f"{path} was saved by {written['processes']} processes with vLLM engines: skipped", file=sys.stderr)
        else:
            state = json.loads((path / "trainer_state.json").read_text())
            if state.get("train_batch_size") != trainer._train_batch_size:  # transformers before 5 takes the old one
                state["train_batch_size"] = trainer._train_batch_size
                replace_text(path / "trainer_state.json", json.dumps(state))
            print(f"Training resumes from {path}", file=sys.stderr)
            return str(path)
    return None


def checkpoints(folder: str) -> list[tuple[Path, dict[str, Any]]]:
    """Return the checkpoints in a folder, newest first, each with this script's notes, or {} if it has none."""
    steps = {path: path.name.removeprefix("checkpoint-") for path in Path(folder).glob("checkpoint-*")}
    saved = []
    for path in sorted((path for path in steps if steps[path].isdigit()), key=lambda path: -int(steps[path])):
        try:
            saved.append((path, json.loads((path / "whole.json").read_text())))
        except (OSError, ValueError):
            saved.append((path, {}))
    return saved


def name_adapters(checkpoint: Path) -> None:
    """Copy the default adapter to a folder beside others (DPO's "ref"), where transformers 5.17 looks for it."""
    if any(checkpoint.glob("*/adapter_config.json")):
        (checkpoint / "default").mkdir(exist_ok=True)
        for file in checkpoint.glob("adapter_*"):
            shutil.copy2(file, checkpoint / "default")


def sizes(checkpoint: Path) -> dict[str, int]:
    """Return the bytes of each file of a checkpoint; a machine that ended may not have sent all to a bucket."""
    others = ("trainer_state.json", "whole.json", "whole.json.new")
    files = (path for path in sorted(checkpoint.rglob("*")) if path.is_file() and path.name not in others)
    return {str(path.relative_to(checkpoint)): path.stat().st_size for path in files}


def replace_text(path: Path, text: str) -> None:
    """Write a file completely or not at all, even if this process is killed."""
    aside = path.with_name(f"{path.name}.new")
    aside.write_text(text)
    os.replace(aside, path)


def note_signals(told: list[int]) -> dict[Any, Any]:
    """Add a signal that ends the job to `told`; return the handlers that its signals had before."""
    slurm = [signal.SIGUSR1] if signal.getsignal(signal.SIGUSR1) is signal.SIG_IGN else []  # the batch script's
    return {number: signal.signal(number, lambda sent, _: told.append(sent)) for number in [signal.SIGTERM, *slurm]}


def reuses_completions(trainer: Any) -> bool:
    """Return whether GRPO takes another step with the same completions, which no checkpoint keeps."""
    parts = (getattr(trainer.args, name, None) or 1 for name in ("steps_per_generation", "num_iterations"))
    return getattr(trainer, "_step", 0) % math.prod(parts) != 0


def begin_checkpoint(checkpoint: Path, training: dict[str, Any]) -> None:
    """Mark a checkpoint as this training's before it is complete."""
    checkpoint.mkdir(parents=True, exist_ok=True)
    replace_text(checkpoint / "whole.json", json.dumps(training))


def complete_checkpoint(checkpoint: Path, training: dict[str, Any], about: dict[str, Any]) -> None:
    """Write what makes a checkpoint complete, and remove older ones that were saved by time."""
    name_adapters(checkpoint)
    replace_text(checkpoint / "whole.json", json.dumps({**training, **about, "files": sizes(checkpoint)}))
    ours = {**training, "by_time": True}.items()
    by_time = [path for path, written in checkpoints(str(checkpoint.parent)) if ours <= written.items()]
    for path in by_time[KEPT:]:
        shutil.rmtree(path)


def end_job() -> None:
    """End this process as its signal asks, once all processes have saved."""
    print("The job was told to end; the training is saved: start it again to resume", file=sys.stderr)
    PartialState().destroy_process_group()
    sys.exit(128 + signal.SIGTERM)


def save_by_time(trainer: Any, training: dict[str, Any], seconds: float) -> TrainerCallback:
    """Return a callback that saves a training at an interval of `seconds`, at SIGTERM, and when it ends."""

    class SaveByTime(TrainerCallback):
        is_told_to_end = has_ended = is_ours = False

        def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            self.saved, self.told = time.monotonic(), list[int]()
            self.usual = note_signals(self.told)

        def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            self.has_ended = state.global_step >= state.max_steps or control.should_training_stop
            is_due = is_main_process and time.monotonic() - self.saved > seconds
            wanted = torch.tensor([is_due, bool(self.told)], dtype=torch.int32, device=args.device)
            is_due, self.is_told_to_end = reduce(wanted, "sum").tolist()  # all processes save at the same step
            if not control.should_save:  # else the notebook asks for this one, and decides how long it stays
                self.is_ours = self.has_ended or ((is_due or self.is_told_to_end) and not reuses_completions(trainer))
                control.should_save = self.is_ours
            if control.should_save and is_main_process:  # until it is complete, its `files` are missing
                begin_checkpoint(Path(args.output_dir, f"checkpoint-{state.global_step}"), training)

        def on_evaluate(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            if control.should_training_stop:  # before its last step: that is its end, too
                self.has_ended = control.should_save = True

        def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            PartialState().wait_for_everyone()
            self.saved = time.monotonic()
            if is_main_process:
                about = {"processes": world_size, "ended": self.has_ended, "by_time": self.is_ours}
                complete_checkpoint(Path(args.output_dir, f"checkpoint-{state.global_step}"), training, about)
            self.is_ours = False
            PartialState().wait_for_everyone()
            if self.is_told_to_end and not self.has_ended:
                end_job()

        def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            for number, usual in self.usual.items():
                signal.signal(number, usual)

    return SaveByTime()
