"""The generated launch lines on two machines that reach each other only over a network cable."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from nb2ddp.options import Launch, Launcher
from nb2ddp.script.launch import ADDRESS, launch_command
from tests.jobs import SCRIPT, Job, prepare, wait_for

from . import machines

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from .machines import Machine

pytestmark = pytest.mark.cluster

START_SECONDS = 240  # imports by four processes that share the cores of a small machine with slow tests
END_SECONDS = 60


@pytest.fixture
def pair() -> Iterator[tuple[Machine, Machine]]:
    if reason := machines.missing():
        pytest.skip(reason)
    name = f"n{os.getpid()}"
    try:
        yield machines.start(name)
    finally:
        machines.stop(name)


@contextmanager
def started(job: Job, pair: tuple[Machine, Machine]) -> Iterator[list[subprocess.Popen[bytes]]]:
    """Run the launch line on each machine; its output is in `machineN.log` in the job's folder."""
    launchers = []
    try:
        for rank, machine in enumerate(pair):
            line = launch_command(job.launch, SCRIPT, rank).replace(ADDRESS, pair[0].address)
            with (job.folder / f"machine{rank}.log").open("wb") as log:
                launcher = subprocess.Popen(
                    [*machine.prefix, "bash", "-c", line],
                    cwd=job.work,
                    # By default Gloo takes the interface of the host's name, which is here the same for both machines.
                    env={**job.environment, "GLOO_SOCKET_IFNAME": machine.interface, "MASTER_ADDR": pair[0].address},
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
            launchers.append(launcher)
        yield launchers
    finally:
        for pid in job.processes():
            os.kill(pid, signal.SIGKILL)
        for launcher in launchers:
            launcher.wait()


def printed(job: Job) -> str:
    """Return the end of the output of each machine's launcher."""
    return "\n".join((job.folder / f"machine{rank}.log").read_text()[-3000:] for rank in (0, 1))


@pytest.mark.parametrize(("launcher", "gpus"), [("accelerate", 2), ("torchrun", 1)])
def test_losses_are_those_of_one_process(
    launcher: Launcher, gpus: int, pair: tuple[Machine, Machine], alone: Job, tmp_path: Path
) -> None:
    job = prepare(tmp_path / "job", Launch(gpus=gpus, machines=2, launcher=launcher))
    with started(job, pair) as launchers:
        codes = [process.wait(2 * START_SECONDS) for process in launchers]
    assert codes == [0, 0], printed(job)
    differences = [job.difference(rank, alone) for rank in range(2 * gpus)]
    print(f"losses of the ranks differ from those of one process by {differences}")
    assert max(differences) < 1e-3
    assert "'loss': " in (job.folder / "machine0.log").read_text()
    assert "'loss': " not in (job.folder / "machine1.log").read_text()
    assert (job.work / "saved" / "model.safetensors").is_file()
    assert job.processes() == {}


def test_one_killed_process_ends_the_job(pair: tuple[Machine, Machine], tmp_path: Path) -> None:
    job = prepare(tmp_path / "job", Launch(gpus=1, machines=2, launcher="accelerate"), steps=10_000)
    with started(job, pair) as launchers:
        wait_for(lambda: bool(job.losses(0)) or any(process.poll() for process in launchers), START_SECONDS)
        assert [process.poll() for process in launchers] == [None, None], printed(job)
        os.kill(job.worker(0), signal.SIGKILL)
        killed = time.monotonic()
        codes = [process.wait(END_SECONDS) for process in launchers]
        print(f"killed rank 0: both machines ended {time.monotonic() - killed:.1f} s later with {codes}")
        assert 0 not in codes
        assert wait_for(lambda: not job.processes(), END_SECONDS + killed - time.monotonic()), job.processes()


def test_a_job_that_is_started_again_resumes(pair: tuple[Machine, Machine], alone: Job, tmp_path: Path) -> None:
    """One machine is switched off; then the launch line runs again on each machine."""
    job = prepare(tmp_path / "job", Launch(gpus=1, machines=2, launcher="torchrun"), resume=True)
    with started(job, pair) as launchers:
        wait_for(lambda: len(job.losses(0)) >= 4 or any(each.poll() for each in launchers), START_SECONDS)
        assert [each.poll() for each in launchers] == [None, None], printed(job)
        os.killpg(launchers[1].pid, signal.SIGKILL)
        os.kill(job.worker(1), signal.SIGKILL)
        assert launchers[0].wait(END_SECONDS) != 0
        assert wait_for(lambda: not job.processes(), END_SECONDS), job.processes()
    with started(job, pair) as launchers:
        codes = [process.wait(2 * START_SECONDS) for process in launchers]
    assert codes == [0, 0], printed(job)
    assert "Training resumes from outputs/checkpoint-" in (job.folder / "machine0.log").read_text()
    assert job.losses(0) == pytest.approx(alone.losses(0), abs=1e-3)
