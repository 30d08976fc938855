"""A job whose machines have GPUs of unequal size: every process comes to the same number of optimizer steps."""

from __future__ import annotations

from pathlib import Path

import pytest

from nb2ddp.api import convert_file
from nb2ddp.options import Launch, Options

from .runner import run

pytestmark = pytest.mark.e2e

NOTEBOOK = Path(__file__).resolve().parents[2] / "fixtures" / "notebooks" / "alpaca.ipynb"
#: What the split asks of a process's own GPUs, and what the two processes are told: a T4 and an H200.
TOLD = {
    "range(torch.cuda.device_count())": "range(1)",
    "torch.cuda.get_device_properties(n).total_memory": '[15.8e9, 150.1e9][int(os.environ["RANK"])]',
}


def test_processes_that_see_unequal_gpus_take_equal_steps(hub: Path, tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    launch = Launch(gpus=1, machines=2)
    convert_file(NOTEBOOK, script, Options(launch=launch))
    source = script.read_text()
    for asked, told in TOLD.items():
        assert source.count(asked) == 1
        source = source.replace(asked, told)
    script.write_text(source)
    both = run(script, hub, tmp_path / "run", 2, cuda_is_cpu=True)
    assert list(both.problems()) == []
    assert (
        "Samples a step: 8 (per-device batch 2 x accumulation 2 x processes 2)" in both.ranks[0].stdout
    )  # the H200 alone: 4 x 1
    first, second = ([[step.step for step in training] for training in rank.trainings] for rank in both.ranks)
    assert first == second
    assert first[0]
