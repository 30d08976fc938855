"""Resume an interrupted training from its last checkpoint."""

import itertools
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import torch
from accelerate import PartialState
from accelerate.utils import broadcast_object_list, compare_versions, reduce
from transformers import TrainerCallback, TrainerState

from nb2ddp.runtime.process import is_main_process

training_numbers = itertools.count(1)  # each training of the script has its own checkpoints


class SaveByTime(TrainerCallback):
    """Saves a training every few minutes, at its end, and when a signal (SIGTERM, SIGUSR1) asks the job to end."""

    def __init__(self, training: str, minutes: float) -> None:
        self.training, self.seconds, self.saved = training, 60 * minutes, time.monotonic()
        self.signaled = self.must_end = False
        for number in (signal.SIGTERM, signal.SIGUSR1):
            signal.signal(number, self.note_signal)

    def note_signal(self, *_: Any) -> None:
        self.signaled = True

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        is_due = time.monotonic() - self.saved > self.seconds
        wanted = torch.tensor([is_due, self.signaled], dtype=torch.int32, device=args.device)
        is_due, self.must_end = (reduce(wanted, "sum") > 0).tolist()  # all processes save at the same step
        control.should_save |= is_due or self.must_end or control.should_training_stop

    def on_save(self, args: Any, state: Any, control: Any, model: Any, **_: Any) -> None:
        PartialState().wait_for_everyone()  # until each process has saved its random numbers
        self.saved = time.monotonic()
        if is_main_process:
            checkpoint = Path(args.output_dir, f"checkpoint-{state.global_step}")
            adapters = getattr(model, "peft_config", {})
            if "default" in adapters and len(adapters) > 1:  # with DPO's "ref" too, transformers loads from "default"
                model.save_pretrained(checkpoint / "default", selected_adapters=["default"])
            (checkpoint / "complete.txt").write_text(self.training)
        PartialState().wait_for_everyone()
        if self.must_end and not control.should_training_stop:
            print("The training is saved: start the job again to resume it", file=sys.stderr)
            PartialState().destroy_process_group()
            sys.exit(128 + signal.SIGTERM)

    def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def last_checkpoint(trainer: Any, minutes: float = 10) -> str | None:
    """Prepare a training to save itself; return its last complete checkpoint, or None to start from the beginning."""
    args, number = trainer.args, next(training_numbers)
    if number > 1:
        args.output_dir = os.path.join(args.output_dir, f"training-{number}")
    training = f"{Path(sys.argv[0]).name}, {trainer.get_total_train_batch_size(args)} samples a step, "
    training += f"{args.max_steps} steps" if args.max_steps > 0 else f"{args.num_train_epochs} epochs"
    if compare_versions("transformers", "<", "5"):  # transformers 4 takes the per-device batch from the checkpoint
        training += f", per-device batch {trainer._train_batch_size}"
    args.save_only_model, args.save_total_limit = False, max(args.save_total_limit or 3, 3)  # the newest may be partial
    trainer.remove_callback(SaveByTime)  # of an earlier training of this trainer
    trainer.add_callback(SaveByTime(training, minutes))
    notes = [note for note in Path(args.output_dir).glob("checkpoint-*/complete.txt") if note.read_text()]
    newest = max(notes, key=lambda note: int(note.parent.name.split("-")[1]), default=None)
    (newest,) = broadcast_object_list([newest])
    if newest is None:
        return None
    if newest.read_text() != training:
        sys.exit(f"{newest.parent} is from {newest.read_text()}, not {training}: delete the checkpoints to start anew")
    state = TrainerState.load_from_json(str(newest.with_name("trainer_state.json")))
    if state.global_step >= state.max_steps:  # the training has ended: load its weights and train no step
        args.num_train_epochs, args.max_steps = 0, -1
    print(f"Training resumes from {newest.parent}", file=sys.stderr)
    return str(newest.parent)
