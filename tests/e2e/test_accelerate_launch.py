"""The launch command of the README, with the config that the converter writes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from nb2ddp.options import Launch
from tests.jobs import prepare, train_alone

pytestmark = [pytest.mark.e2e, pytest.mark.short]


def test_accelerate_launches_the_script(tmp_path: Path) -> None:
    job, alone = prepare(tmp_path / "job", Launch(gpus=2)), train_alone(tmp_path / "alone")
    command = [sys.executable, "-m", "accelerate.commands.launch", "--config_file", "accelerate_config.yaml"]
    command += ["--main_process_port", "0", "train.py"]
    done = subprocess.run(command, cwd=job.work, env=job.environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("'train_runtime':") == 1, "one process prints"
    assert max(job.difference(rank, alone) for rank in range(2)) < 1e-3
