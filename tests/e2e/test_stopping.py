"""Jobs that end early: all processes end soon, with an exit code, and the cause is on the screen."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from nb2ddp.api import convert_file
from nb2ddp.options import Launch
from nb2ddp.rehearsal.run import free_port
from tests.jobs import ROOT, Job, change, prepare, wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.e2e

START_SECONDS = 120  # imports by two processes on a busy machine
END_SECONDS = 60
LAUNCHERS = {
    "torchrun": ["-m", "torch.distributed.run", "--nproc-per-node=2"],
    "accelerate": ["-m", "accelerate.commands.launch", "--config_file=accelerate_config.yaml"],
}


@contextmanager
def started(job: Job, launcher: str = "torchrun", **environment: str) -> Iterator[subprocess.Popen[bytes]]:
    """Start two processes in a session of their own; `screen.log` gets the output of all processes."""
    words = LAUNCHERS[launcher]
    port = f"--{'master' if launcher == 'torchrun' else 'main_process'}_port={free_port()}"
    with (job.folder / "screen.log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, *words, port, "train.py"],
            cwd=job.work,
            env={**job.environment, **environment},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        yield process
    finally:
        for pid in job.processes():
            os.kill(pid, signal.SIGKILL)
        process.wait()


def screen(job: Job) -> str:
    return (job.folder / "screen.log").read_text(errors="replace")


def trains(job: Job, process: subprocess.Popen[bytes]) -> None:
    """Wait for the first training step."""
    wait_for(lambda: bool(job.losses(0)) or process.poll() is not None, START_SECONDS)
    assert process.poll() is None, screen(job)[-3000:]


def ends(job: Job, process: subprocess.Popen[bytes], since: float) -> int:
    """Wait for the end of all processes of a job, and return the launcher's exit code."""
    code = process.wait(END_SECONDS)
    assert wait_for(lambda: not job.processes(), since + END_SECONDS - time.monotonic()), job.processes()
    print(f"ended {time.monotonic() - since:.1f} s later with code {code}")
    return code


@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_ctrl_c(launcher: str, tmp_path: Path) -> None:
    job = prepare(tmp_path / "job", Launch(gpus=2), steps=10_000)
    with started(job, launcher) as process:
        trains(job, process)
        since = time.monotonic()
        os.killpg(process.pid, signal.SIGINT)
        assert ends(job, process, since) != 0
    assert re.search(r"SIGINT|KeyboardInterrupt|got signal: 2", screen(job)), screen(job)[-3000:]


def test_killed_process(tmp_path: Path) -> None:
    job = prepare(tmp_path / "job", Launch(gpus=2), steps=10_000)
    with started(job) as process:
        trains(job, process)
        since = time.monotonic()
        os.kill(job.worker(1), signal.SIGKILL)
        assert ends(job, process, since) != 0
    assert re.search(r"exitcode: -9\) local_rank: 1 .*train\.py", re.sub(r"\s+", " ", screen(job)))


def test_full_disk_while_training(tmp_path: Path) -> None:
    """The main process has no space for a checkpoint, while the other process continues to train."""
    job = prepare(tmp_path / "job", Launch(gpus=2), steps=10_000)
    change(job.work / "train.py", 'save_strategy = "no",', "save_steps = 2,")
    (job.work / "outputs" / "checkpoint-2").mkdir(parents=True)
    (job.work / "outputs" / "checkpoint-2" / "trainer_state.json").symlink_to("/dev/full")
    with started(job) as process:
        trains(job, process)
        assert ends(job, process, time.monotonic()) != 0
    assert "No space left on device" in screen(job)


def test_wrong_version(tmp_path: Path) -> None:
    """The setup block requires minimum versions: every process ends with the same line."""
    job = prepare(tmp_path / "job", Launch(gpus=2))
    fixture = ROOT / "fixtures" / "notebooks" / "random_reward.ipynb"
    convert_file(fixture, job.work / "train.py", force=True)  # replaces the script of another notebook
    about = tmp_path / "older" / "unsloth-2026.9.13.dist-info"
    about.mkdir(parents=True)
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: unsloth\nVersion: 2026.9.13\n")
    path = os.pathsep.join([str(tmp_path / "older"), os.environ.get("PYTHONPATH", "")])
    with started(job, PYTHONPATH=path) as process:
        wait_for(lambda: process.poll() is not None, START_SECONDS)
        assert ends(job, process, time.monotonic()) != 0
    lines = [line for line in screen(job).splitlines() if "or newer is needed on several GPUs" in line]
    assert set(lines) == {"unsloth 2026.9.14 or newer is needed on several GPUs"}
