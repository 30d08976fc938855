"""The generated batch script on a SLURM cluster of two nodes."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from nb2ddp.options import Launch
from nb2ddp.script.launch import launch_command
from tests.jobs import SCRIPT, Job, prepare, wait_for

if TYPE_CHECKING:
    from .slurm import Cluster

pytestmark = pytest.mark.cluster

START_SECONDS = 240  # imports by processes that share the cores of a small machine with slow tests
END_SECONDS = 60


def submit(job: Job, cluster: Cluster) -> str:
    """Run the launch line, and return the number of the job."""
    done = subprocess.run(
        launch_command(job.launch, SCRIPT),
        shell=True,
        cwd=job.work,
        env={**job.environment, **cluster.environment},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.removeprefix("Submitted batch job ").strip()


def state(number: str, cluster: Cluster) -> tuple[str, str]:
    """Return the state of a job, and its exit code followed by the signal."""
    about = cluster.call("scontrol", "show", "job", number)
    return re.findall(r"JobState=(\w+)", about)[0], re.findall(r" ExitCode=(\S+)", about)[0]


def is_over(number: str, cluster: Cluster) -> bool:
    return state(number, cluster)[0] not in ("PENDING", "CONFIGURING", "RUNNING", "COMPLETING")


def printed(job: Job) -> str:
    """Return the end of each log in the job's folder."""
    return "\n".join(f"{log.name}:\n{log.read_text()[-3000:]}" for log in sorted(job.work.glob("*.log")))


def test_losses_are_those_of_one_process(cluster: Cluster, alone: Job, tmp_path: Path) -> None:
    settings = ("--job-name=tune", "--time=30", "--partition=test", "--cpus-per-task=1", "--mem=4G")
    job = prepare(tmp_path / "job", Launch(gpus=1, machines=2, launcher="slurm", slurm=settings))
    number = submit(job, cluster)
    wait_for(lambda: bool(job.losses(0)) or is_over(number, cluster), START_SECONDS)
    assert "2" in {variables.get("SLURM_JOB_NUM_NODES") for variables in job.processes().values()}, printed(job)
    assert wait_for(lambda: is_over(number, cluster), 2 * START_SECONDS), printed(job)
    assert state(number, cluster) == ("COMPLETED", "0:0"), printed(job)
    differences = [job.difference(rank, alone) for rank in range(2)]
    print(f"losses of the ranks differ from those of one process by {differences}")
    assert max(differences) < 1e-3
    assert (job.work / "saved" / "model.safetensors").is_file()

    batch, first, second = (job.work / f"tune-{number}{part}.log" for part in ("", "-machine0", "-machine1"))
    assert batch.read_text() == ""
    assert "'loss': " in first.read_text()
    assert "'loss': " not in second.read_text()
    own = {path.relative_to(job.work).parts[0] for path in job.work.glob("*/*/attempt_0/0/stderr.log")}
    assert own == {first.stem, second.stem}
    assert job.processes() == {}


def test_one_killed_process_ends_the_job(cluster: Cluster, tmp_path: Path) -> None:
    job = prepare(tmp_path / "job", Launch(gpus=1, machines=2, launcher="slurm"), steps=10_000)
    number = submit(job, cluster)
    wait_for(lambda: bool(job.losses(0)) or is_over(number, cluster), START_SECONDS)
    assert not is_over(number, cluster), printed(job)
    os.kill(job.worker(1), signal.SIGKILL)
    killed = time.monotonic()
    assert wait_for(lambda: is_over(number, cluster), END_SECONDS), printed(job)
    print(f"killed rank 1: the job ended {time.monotonic() - killed:.1f} s later as {state(number, cluster)}")
    assert state(number, cluster)[0] == "FAILED"
    assert wait_for(lambda: not job.processes(), END_SECONDS + killed - time.monotonic()), job.processes()
