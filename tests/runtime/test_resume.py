"""What makes a checkpoint one to resume from."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from nb2ddp.runtime.resume import KEPT, checkpoints, name_adapters, save_by_time, sizes, whole_checkpoint

TRAINING = {"script": "train.py", "training": 1, "samples": 8, "steps": 60}


def saved(folder: Path, step: int, **about: Any) -> Path:
    """A checkpoint with two files, complete unless `about` says otherwise."""
    path = folder / f"checkpoint-{step}"
    path.mkdir()
    (path / "optimizer.pt").write_text("x" * step, encoding="utf-8")
    (path / "trainer_state.json").write_text('{"train_batch_size": 2}', encoding="utf-8")
    written = {**TRAINING, "processes": 2, "ended": False, "by_time": True, "files": sizes(path), **about}
    text = json.dumps({name: value for name, value in written.items() if value is not None})
    (path / "whole.json").write_text(text, encoding="utf-8")
    return path


def trainer(folder: Path, **model: Any) -> Any:
    return SimpleNamespace(
        args=SimpleNamespace(output_dir=str(folder)), model=SimpleNamespace(**model), _train_batch_size=2
    )


@pytest.mark.parametrize(
    ("about", "said", "stays"),
    [
        ({"script": "other.py"}, "belongs to another training ({'script': 'other.py'})", True),
        ({"samples": 16}, "belongs to another training ({'samples': 16})", True),
        ({"steps": "1.0 epochs"}, "belongs to another training", True),
        ({"files": {"optimizer.pt": 10, "model.safetensors": 1}}, "is incomplete: skipped", True),
        ({"files": None}, "is half-written: removed", False),
    ],
)
def test_only_a_whole_checkpoint_of_this_training_counts(
    about: dict[str, Any], said: str, stays: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before, newest = saved(tmp_path, 9), saved(tmp_path, 10, **about)
    assert whole_checkpoint(trainer(tmp_path), TRAINING) == str(before)
    assert said in capsys.readouterr().err
    assert newest.exists() == stays


def test_a_checkpoint_of_another_program_stays(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (saved(tmp_path, 500) / "whole.json").unlink()
    assert whole_checkpoint(trainer(tmp_path), TRAINING) is None
    assert "was not saved by this script: skipped" in capsys.readouterr().err
    assert [path.name for path, _ in checkpoints(str(tmp_path))] == ["checkpoint-500"]


def test_files_of_other_machines_may_come_later(tmp_path: Path) -> None:
    path = saved(tmp_path, 9)
    (path / "rng_state_1.pth").write_text("late", encoding="utf-8")
    assert whole_checkpoint(trainer(tmp_path), TRAINING) == str(path)


def test_engines_want_their_number_of_processes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    saved(tmp_path, 9)
    assert whole_checkpoint(trainer(tmp_path, vllm_engine=object()), TRAINING) is None
    assert "saved by 2 processes with vLLM engines" in capsys.readouterr().err


def test_the_batch_of_a_device_is_this_run_s(tmp_path: Path) -> None:
    path, again = saved(tmp_path, 9), trainer(tmp_path)
    again._train_batch_size = 1
    assert whole_checkpoint(again, TRAINING) == str(path)
    assert json.loads((path / "trainer_state.json").read_text()) == {"train_batch_size": 1}


def test_a_default_adapter_stands_beside_others(tmp_path: Path) -> None:
    for folder in (tmp_path, tmp_path / "ref"):
        folder.mkdir(exist_ok=True)
        (folder / "adapter_config.json").write_text("{}", encoding="utf-8")
        (folder / "adapter_model.safetensors").write_text(folder.name, encoding="utf-8")
    name_adapters(tmp_path)
    assert (tmp_path / "default" / "adapter_model.safetensors").read_text() == tmp_path.name
    assert (tmp_path / "ref" / "adapter_model.safetensors").read_text() == "ref"


def test_one_adapter_stays_alone(tmp_path: Path) -> None:
    (tmp_path / "adapter_config.json").write_text("{}", encoding="utf-8")
    name_adapters(tmp_path)
    assert sizes(tmp_path) == {"adapter_config.json": 2}


def test_sizes_leave_out_what_is_written_later(tmp_path: Path) -> None:
    for name in ("whole.json", "trainer_state.json", "model.safetensors", "default/x.json"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("1", encoding="utf-8")
    assert sizes(tmp_path) == {"default/x.json": 1, "model.safetensors": 1}


def test_a_training_that_is_told_to_end_saves_a_whole_checkpoint_and_ends_with_the_signals_code(tmp_path: Path) -> None:
    for step in range(1, KEPT + 2):
        saved(tmp_path, step)
    told = trainer(tmp_path)
    args, control = told.args, SimpleNamespace(should_save=False, should_training_stop=False)
    args.device, state = "cpu", SimpleNamespace(global_step=8, max_steps=60)
    callback: Any = save_by_time(told, TRAINING, seconds=600)
    usual = signal.getsignal(signal.SIGTERM)
    callback.on_train_begin(args, state, control)
    try:
        callback.on_step_end(args, state, control)
        assert not control.should_save
        os.kill(os.getpid(), signal.SIGTERM)
        callback.on_step_end(args, state, control)
        assert control.should_save
        (tmp_path / "checkpoint-8" / "trainer_state.json").write_text('{"train_batch_size": 2}', encoding="utf-8")
        with pytest.raises(SystemExit) as ended:
            callback.on_save(args, state, control)
    finally:
        callback.on_train_end(args, state, control)
    assert ended.value.code == 128 + signal.SIGTERM
    assert signal.getsignal(signal.SIGTERM) == usual
    assert [path.name for path, _ in checkpoints(str(tmp_path))] == ["checkpoint-8", f"checkpoint-{KEPT + 1}"]
    assert whole_checkpoint(told, TRAINING) == str(tmp_path / "checkpoint-8")
