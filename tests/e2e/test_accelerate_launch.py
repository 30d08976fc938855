"""The launch command of the README, with the config that the converter writes."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from nb2ddp.api import convert_file

from .runner import run

if TYPE_CHECKING:
    from collections.abc import Sequence

pytestmark = pytest.mark.e2e

NOTEBOOK = Path(__file__).resolve().parents[2] / "fixtures" / "notebooks" / "install_state.ipynb"


@pytest.mark.parametrize(
    ("options", "processes"), [pytest.param((), 2, marks=pytest.mark.short), (("--num_processes", "1"), 1)]
)
def test_accelerate_launches_the_script(options: Sequence[str], processes: int, hub: Path, tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    convert_file(NOTEBOOK, script)
    launcher = [sys.executable, "-m", "accelerate.commands.launch"]
    launcher += ["--config_file", str(tmp_path / "accelerate_config.yaml"), "--main_process_port", "0", *options]
    result = run(script, hub, tmp_path / "run", processes, launcher=launcher)
    assert list(result.problems()) == []
    assert [len(process.trainings) for process in result.ranks] == [1] * processes
