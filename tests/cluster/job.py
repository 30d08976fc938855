"""A converted fixture with its launch files in a folder of its own, to be started on a cluster and looked at."""

from __future__ import annotations

import math
import os
import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from nb2ddp.api import convert_file
from nb2ddp.options import Launch, Options
from tests.e2e.runner import Run, Trainings, copy_hub, environment, read_steps, read_writers, run

if TYPE_CHECKING:
    from collections.abc import Callable

NOTEBOOK = Path(__file__).resolve().parents[2] / "fixtures" / "notebooks" / "alpaca.ipynb"
SCRIPT = "train.py"


def train_alone(hub: Path, folder: Path) -> Run:
    """Run the fixture as one process without a launcher, for its losses."""
    convert_file(NOTEBOOK, folder / SCRIPT)
    return run(folder / SCRIPT, hub, folder / "run", cuda_is_cpu=True)


@dataclass(frozen=True)
class Job:
    """A folder that all machines share: `work` holds the hub, the script and its launch files."""

    folder: Path
    launch: Launch

    @property
    def work(self) -> Path:
        return self.folder / "work"

    @property
    def environment(self) -> dict[str, str]:
        """The environment to start it in: this Python's programs, CPU, and what the runner records with."""
        programs = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
        return {**environment(self.folder, cuda_is_cpu=True), "PATH": programs}

    def trainings(self, rank: int) -> Trainings:
        """The steps that a process has logged so far, for each training."""
        return read_steps(self.folder / "steps" / f"{rank}.jsonl")

    def difference(self, rank: int, alone: Run) -> float:
        """The largest difference between the losses of a process and those of one that trained alone."""
        own = [step for training in self.trainings(rank) for step in training]
        other = [step for training in alone.trainings for step in training]
        if [step.step for step in own] != [step.step for step in other]:
            return math.inf
        return max(abs(a.loss - b.loss) for a, b in zip(own, other, strict=True))

    def written_twice(self) -> dict[str, frozenset[int]]:
        """The files below `work` that processes of several ranks have written, made or removed."""
        writers, _ = read_writers(self.folder / "writes.log", self.work, {}, alone=False)
        return {path: ranks for path, ranks in writers.items() if len(ranks) > 1}

    def processes(self) -> dict[int, dict[str, str]]:
        """The processes that run for it on any of the machines, launchers included: PID to environment."""
        found = {}
        mark = ("STEPS_FOLDER", str(self.folder / "steps"))
        for entry in Path("/proc").glob("[0-9]*"):
            try:
                pairs = (entry / "environ").read_bytes().decode(errors="replace").split("\0")
                state = (entry / "stat").read_text().rpartition(")")[2].split()[0]
            except OSError:  # it has just ended
                continue
            variables = dict(pair.split("=", 1) for pair in pairs if "=" in pair)
            if mark in variables.items() and state != "Z":
                found[int(entry.name)] = variables
        return found

    def worker(self, rank: int) -> int:
        """The PID of the training process of that rank, whose parent is its machine's launcher."""
        workers = {pid: own for pid, own in self.processes().items() if own.get("RANK") == str(rank)}
        (pid,) = (pid for pid in workers if _parent(pid) not in workers)
        return pid


def prepare(hub: Path, folder: Path, launch: Launch, *, steps: int | None = None, resume: bool = False) -> Job:
    """Convert the fixture into a copy of the hub.

    Args:
        hub: the tiny hub of the end-to-end tests.
        folder: a new folder for everything about the job.
        launch: what the launch files are written for.
        steps: train for so many instead of the notebook's own.
        resume: let the script resume its training, and save it after each step.
    """
    folder = folder.resolve()
    (folder / "steps").mkdir(parents=True)
    job = Job(folder, launch)
    copy_hub(hub.resolve(), job.work)
    script = job.work / SCRIPT
    convert_file(NOTEBOOK, script, replace(Options(), launch=launch, resume=resume))
    if resume:
        text = script.read_text()
        assert text.count("minutes=10") == 1
        script.write_text(text.replace("minutes=10", "minutes=0"))
    if steps is not None:
        text = script.read_text()
        assert text.count("max_steps = 20") == 1
        script.write_text(text.replace("max_steps = 20", f"max_steps = {steps}"))
    return job


def wait_for(what: Callable[[], bool], seconds: float) -> bool:
    """Wait until `what` is true; return whether it is before the time is over."""
    deadline = time.monotonic() + seconds
    while not (true := what()) and time.monotonic() < deadline:
        time.sleep(0.2)
    return true


def _parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
