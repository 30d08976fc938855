"""Resume an interrupted training from its last checkpoint."""

import itertools
import json
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

training_numbers = itertools.count(1)  # each training of the script has its own checkpoints


def last_checkpoint(trainer: Any, minutes: float = 10) -> str | None:
    """Return the last complete checkpoint of this training, or None if there is none.

    From here on it saves itself every `minutes`, when the job is told to end (SIGTERM), and at its end.
    """
    args, number = trainer.args, next(training_numbers)
    if number > 1:
        args.output_dir = os.path.join(args.output_dir, f"training-{number}")
    samples = trainer._train_batch_size * args.gradient_accumulation_steps * world_size
    training = {"script": Path(sys.argv[0]).name, "training": number, "samples": samples}
    args.save_only_model = False  # save the optimizer and the random numbers too
    args.save_total_limit = max(2, args.save_total_limit or 0)  # keep the last one until the next is complete
    trainer.add_callback(save_by_time(trainer, training, 60 * minutes))
    found = [whole_checkpoint(trainer, training) if is_main_process else None]
    broadcast_object_list(found)
    checkpoint = found[0]
    if checkpoint and json.loads(Path(checkpoint, "whole.json").read_text())["ended"]:
        args.num_train_epochs, args.max_steps = 0, -1  # the training is finished: only load its weights
    return checkpoint


def whole_checkpoint(trainer: Any, training: dict[str, Any]) -> str | None:
    """Return the newest complete checkpoint of this training, or None. Only the main process calls this."""
    folder = Path(trainer.args.output_dir)
    steps = {path: int(path.name.rpartition("-")[2]) for path in folder.glob("checkpoint-*[0-9]")}
    for path in sorted(steps, key=steps.__getitem__, reverse=True):
        try:
            written = json.loads((path / "whole.json").read_text())
            state = json.loads((path / "trainer_state.json").read_text())
            if written["files"] != sizes(path):
                raise ValueError
        except (OSError, ValueError, KeyError):
            print(f"{path} is incomplete: skipped", file=sys.stderr)
            os.replace(path, unused(folder / f"unfinished-{steps[path]}"))
            continue
        if any(written.get(name) != value for name, value in training.items()):
            other = {name: written.get(name) for name in training}
            print(f"{path} belongs to another training ({other}): skipped", file=sys.stderr)
        elif getattr(trainer.model, "vllm_engine", None) is not None and written["processes"] != world_size:
            print(f"{path} was saved by {written['processes']} processes with vLLM engines: skipped", file=sys.stderr)
        else:
            if state.get("train_batch_size") != trainer._train_batch_size:  # transformers before 5 takes the old one
                state["train_batch_size"] = trainer._train_batch_size
                replace_text(path / "trainer_state.json", json.dumps(state))
            print(f"Training resumes from {path}", file=sys.stderr)
            return str(path)
    return None


def unused(path: Path) -> Path:
    """Return a path that does not exist yet."""
    return next(new for n in itertools.count() if not (new := path.with_name(f"{path.name}-{n}")).exists())


def name_adapters(checkpoint: Path) -> None:
    """Lay the default adapter beside others (DPO's "ref"): transformers 5.17 then loads those in folders alone."""
    if any(checkpoint.glob("*/adapter_config.json")):
        (checkpoint / "default").mkdir(exist_ok=True)
        for file in checkpoint.glob("adapter_*"):
            shutil.copy2(file, checkpoint / "default")


def sizes(checkpoint: Path) -> dict[str, int]:
    """The bytes of a checkpoint's files; in a bucket some may be missing when the machine that sent them is gone."""
    others = ("trainer_state.json", "whole.json", "whole.json.new")
    files = (path for path in sorted(checkpoint.rglob("*")) if path.is_file() and path.name not in others)
    return {str(path.relative_to(checkpoint)): path.stat().st_size for path in files}


def replace_text(path: Path, text: str) -> None:
    """Write a file completely or not at all, even if this process is killed."""
    aside = path.with_name(f"{path.name}.new")
    aside.write_text(text)
    os.replace(aside, path)


def save_by_time(trainer: Any, training: dict[str, Any], seconds: float) -> TrainerCallback:
    """Return a callback that saves a training at an interval of `seconds`, at SIGTERM, and when it ends."""

    class SaveByTime(TrainerCallback):
        is_told_to_end = has_ended = False

        def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            self.saved = time.monotonic()
            slurm = [signal.SIGUSR1] if signal.getsignal(signal.SIGUSR1) is signal.SIG_IGN else []  # the batch script's
            self.usual = {each: signal.signal(each, self.end) for each in [signal.SIGTERM, *slurm]}

        def end(self, *_: Any) -> None:
            self.is_told_to_end = True

        def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            self.has_ended = state.global_step >= state.max_steps or control.should_training_stop
            is_due = is_main_process and time.monotonic() - self.saved > seconds
            wanted = torch.tensor([is_due, self.is_told_to_end], dtype=torch.int32, device=args.device)
            is_due, self.is_told_to_end = reduce(wanted, "sum").tolist()  # all ranks save at the same step
            between = getattr(trainer, "_step", 0) % (getattr(args, "steps_per_generation", None) or 1)
            if self.has_ended or ((is_due or self.is_told_to_end) and not between):
                control.should_save = True

        def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            PartialState().wait_for_everyone()
            self.saved = time.monotonic()
            if is_main_process:
                saved = Path(args.output_dir, f"checkpoint-{state.global_step}")
                name_adapters(saved)
                whole = {**training, "processes": world_size, "ended": self.has_ended, "files": sizes(saved)}
                replace_text(saved / "whole.json", json.dumps(whole))
            PartialState().wait_for_everyone()
            if self.is_told_to_end and not self.has_ended:
                print("The job was told to end; the training is saved: start it again to resume", file=sys.stderr)
                PartialState().destroy_process_group()
                sys.exit(128 + signal.SIGTERM)

        def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            for each, usual in self.usual.items():
                signal.signal(each, usual)

    return SaveByTime()
