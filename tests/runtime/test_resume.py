"""Which checkpoints a training resumes from, and when it saves them."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from transformers import TrainerState

from nb2ddp.runtime import resume

TRAINING = "train.py, 8 samples a step, 60 steps"


@pytest.fixture(autouse=True)
def _script(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The training of a new script, with a version of transformers that does not read the per-device batch."""
    monkeypatch.setattr(sys, "argv", ["train.py"])
    monkeypatch.setattr(resume, "training_numbers", iter((1, 2)))
    monkeypatch.setattr(resume, "compare_versions", lambda *_: False)
    usual = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGUSR1)}
    yield
    for number, handler in usual.items():
        signal.signal(number, handler)


def saved(folder: Path, step: int, training: str | None = TRAINING) -> Path:
    """Write a checkpoint, which is complete if it names its training, and return its folder."""
    path = folder / f"checkpoint-{step}"
    path.mkdir(parents=True)
    TrainerState(global_step=step, max_steps=60, train_batch_size=2).save_to_json(str(path / "trainer_state.json"))
    if training is not None:
        (path / "complete.txt").write_text(training, encoding="utf-8")
    return path


def trainer(folder: Path, samples: int = 8, **given: Any) -> Any:
    args = {"output_dir": str(folder), "max_steps": 60, "num_train_epochs": 3, "save_total_limit": None, **given}
    return SimpleNamespace(
        args=SimpleNamespace(**args),
        _train_batch_size=2,
        get_total_train_batch_size=lambda _: samples,
        add_callback=lambda _: None,
        remove_callback=lambda _: None,
    )


@pytest.mark.parametrize("training", [None, ""])
def test_a_half_written_checkpoint_is_not_taken(training: str | None, tmp_path: Path) -> None:
    before, newest = saved(tmp_path, 9), saved(tmp_path, 10, training)
    assert resume.last_checkpoint(trainer(tmp_path)) == str(before)
    assert newest.exists()


def test_the_newest_is_the_one_of_the_last_step(tmp_path: Path) -> None:
    newest, _ = saved(tmp_path, 10), saved(tmp_path, 9)
    assert resume.last_checkpoint(trainer(tmp_path)) == str(newest)


@pytest.mark.parametrize(
    ("other", "given"),
    [("other.py, 8 samples a step, 60 steps", {}), (TRAINING, {"samples": 16}), (TRAINING, {"max_steps": -1})],
)
def test_a_checkpoint_of_another_training_ends_the_script(other: str, given: dict[str, Any], tmp_path: Path) -> None:
    newest = saved(tmp_path, 10, other)
    with pytest.raises(SystemExit, match=r"checkpoint-10 is from .*, not .*: delete the checkpoints to start anew"):
        resume.last_checkpoint(trainer(tmp_path, **given))
    assert newest.exists()


def test_older_releases_want_the_same_batch_of_a_device(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resume, "compare_versions", lambda *_: True)
    saved(tmp_path, 10, f"{TRAINING}, per-device batch 4")
    with pytest.raises(SystemExit, match=r"not .* per-device batch 2:"):
        resume.last_checkpoint(trainer(tmp_path))


def test_a_training_that_has_ended_is_only_loaded(tmp_path: Path) -> None:
    ended, again = saved(tmp_path, 60), trainer(tmp_path)
    assert resume.last_checkpoint(again) == str(ended)
    assert (again.args.num_train_epochs, again.args.max_steps) == (0, -1)


def test_each_training_has_its_own_folder_and_keeps_as_many_as_the_notebook_says(tmp_path: Path) -> None:
    first, second = trainer(tmp_path), trainer(tmp_path, save_total_limit=5)
    assert resume.last_checkpoint(first) is resume.last_checkpoint(second) is None
    assert (first.args.output_dir, first.args.save_total_limit) == (str(tmp_path), 3)
    assert (second.args.output_dir, second.args.save_total_limit) == (str(tmp_path / "training-2"), 5)


def step(callback: Any, state: Any, **flags: bool) -> Any:
    """Return the control of a trainer after the end of a step."""
    control = SimpleNamespace(**{"should_save": False, "should_training_stop": False, **flags})
    callback.on_step_end(SimpleNamespace(device="cpu"), state, control)
    return control


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1])
def test_a_job_that_gets_a_signal_saves_and_ends(number: int, tmp_path: Path) -> None:
    callback, state = resume.SaveByTime(TRAINING, minutes=10), SimpleNamespace(global_step=8, max_steps=60)
    args = SimpleNamespace(output_dir=str(tmp_path))
    assert not step(callback, state).should_save
    os.kill(os.getpid(), number)
    control = step(callback, state)
    assert control.should_save
    checkpoint = saved(tmp_path, 8, training=None)
    with pytest.raises(SystemExit) as ended:
        callback.on_save(args, state, control, model=None)
    assert ended.value.code == 128 + signal.SIGTERM
    assert resume.last_checkpoint(trainer(tmp_path)) == str(checkpoint)


def test_a_signal_while_the_processes_compare_counts_at_the_next_step(monkeypatch: pytest.MonkeyPatch) -> None:
    callback, state = resume.SaveByTime(TRAINING, minutes=10), SimpleNamespace(global_step=8, max_steps=60)

    def signaled_meanwhile(wanted: torch.Tensor, _: str) -> torch.Tensor:
        os.kill(os.getpid(), signal.SIGTERM)
        return wanted

    with monkeypatch.context() as patch:
        patch.setattr(resume, "reduce", signaled_meanwhile)
        assert not step(callback, state).should_save
    assert step(callback, state).should_save


def test_a_training_is_saved_by_time_and_at_its_end(tmp_path: Path) -> None:
    state = SimpleNamespace(global_step=60, max_steps=60)
    assert step(resume.SaveByTime(TRAINING, minutes=0), state).should_save
    callback = resume.SaveByTime(TRAINING, minutes=10)
    control = step(callback, state, should_training_stop=True)
    assert control.should_save
    saved(tmp_path, 60, training=None)
    os.kill(os.getpid(), signal.SIGTERM)
    callback.on_save(SimpleNamespace(output_dir=str(tmp_path)), state, control, model=None)  # not an early end
    callback.on_train_end(None, state, control)
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL


def test_a_default_adapter_stands_beside_others(tmp_path: Path) -> None:
    peft = pytest.importorskip("peft")
    model = peft.get_peft_model(torch.nn.Sequential(torch.nn.Linear(2, 2)), peft.LoraConfig(target_modules=["0"]))
    model.add_adapter("ref", model.peft_config["default"])
    checkpoint, state = saved(tmp_path, 8, training=None), SimpleNamespace(global_step=8, max_steps=60)
    model.save_pretrained(checkpoint)
    callback, control = resume.SaveByTime(TRAINING, minutes=10), SimpleNamespace(should_training_stop=False)
    callback.on_save(SimpleNamespace(output_dir=str(tmp_path)), state, control, model=model)
    both = [folder / "adapter_model.safetensors" for folder in (checkpoint, checkpoint / "default")]
    assert both[0].read_bytes() == both[1].read_bytes()
    assert (checkpoint / "ref" / "adapter_model.safetensors").exists()
