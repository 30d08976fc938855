"""Measure what is missing: `python -m benchmarks.gpu --results FILE --work FOLDER`.

Builds the models and the data in FOLDER, converts the notebooks, runs every job of `kinds.py` whose result is missing
or failed, each on GPUs of its own, and writes the results after each. Needs as many GPUs as a job has processes, the
`train` extra, and no network.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

from benchmarks.gpu import results, schedule
from benchmarks.gpu.kinds import KINDS, Job, jobs
from benchmarks.gpu.runner import run
from benchmarks.gpu.scripts import script_hash, write

SHARED = 3  # runs that share a GPU where time is not measured


class Measurement:
    """What builds and runs share: the results file, the folder, and when time is over."""

    def __init__(self, file: Path, work: Path, seconds: float) -> None:
        self.file, self.work, self.deadline = file, work.resolve(), time.monotonic() + seconds
        self.lock = threading.Lock()

    @property
    def left(self) -> float:
        """Seconds until nothing may run any more."""
        return self.deadline - time.monotonic()

    def say(self, *words: object) -> None:
        print(f"{self.left:6.0f} s left:", *words, flush=True)

    def build(self, name: str, devices: list[str]) -> bool:
        """Build a model, or the data sets, unless an earlier measurement did."""
        done = self.work / "hub" / ".built" / name
        if not done.exists():
            environment = {**os.environ, "CUDA_VISIBLE_DEVICES": ",".join(devices)}
            command = [sys.executable, "-m", "benchmarks.gpu.hub", str(self.work / "hub"), name]
            made = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
            if made.returncode:
                self.say("could not build", name, made.stderr[-2000:])
                return False
            done.parent.mkdir(parents=True, exist_ok=True)
            done.touch()
        self.say("built", name)
        return True

    def measure(self, job: Job, devices: list[str]) -> bool:
        """Run a job and keep its result."""
        folder = self.work / "runs" / job.key.replace("/", "-").replace("#", "-")
        shutil.rmtree(folder, ignore_errors=True)
        patience = 3 * KINDS[job.kind].seconds
        facts = run(job, self.work / "hub", folder, devices, timeout=max(min(patience, self.left), 1))
        self.say(job.key, "code", facts["exit_code"], f"{facts['seconds']:.0f} s", results.summary(facts))
        in_time = facts["exit_code"] != 124 or self.left > 0
        if in_time:  # else the time was over, which says nothing of the job
            with self.lock:
                results.add(self.file, job.key, facts)
        return in_time


def build(measurement: Measurement, name: str) -> schedule.Task:
    """The task that builds a model; the data sets need no GPU."""
    return schedule.Task(lambda devices: measurement.build(name, devices), int(name != "datasets"), makes=name)


def task(measurement: Measurement, job: Job) -> schedule.Task:
    """The task that runs a job, once its model and the data are there."""
    kind = KINDS[job.kind]
    needs = frozenset({"datasets", kind.model})
    seconds = kind.seconds * (1.0 if job.gpus == 1 else 0.7)
    return schedule.Task(lambda devices: measurement.measure(job, devices), job.gpus, needs, seconds=seconds)


def is_missing(job: Job, done: dict[str, results.Facts]) -> bool:
    return job.key not in done or bool(done[job.key]["exit_code"])


def is_changed(job: Job, done: dict[str, results.Facts]) -> bool:
    """True where the notebook or the converter has changed the script since it was measured."""
    with tempfile.TemporaryDirectory() as folder:
        write(job, Path(folder))
        return str(done[job.key]["script"]) != script_hash(Path(folder))


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu", description="Measure what is missing.")
    parser.add_argument("--results", type=Path, required=True, help="JSON file that is read and added to")
    parser.add_argument("--work", type=Path, required=True, help="folder for models, data and runs")
    parser.add_argument("--devices", nargs="+", default=["0", "1", "2", "3"], metavar="GPU")
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=list(KINDS), metavar="KIND", help="these alone")
    parser.add_argument("--gpus", nargs="+", type=int, default=[1, 2, 4], help="runs on so many GPUs alone")
    parser.add_argument("--changed", action="store_true", help="also what would run another script than it did")
    parser.add_argument("--again", nargs="+", default=[], metavar="KEY", help="run these too, as sft_3b/converted/4#2")
    parser.add_argument("--minutes", type=float, default=600, help="no run goes on after this time")
    parser.add_argument("--list", action="store_true", help="say what is missing, and stop")
    options = parser.parse_args()
    done = results.read(options.results)
    wanted = [job for job in jobs() if job.kind in options.kinds and job.gpus in options.gpus]
    wanted = [job for job in wanted if is_missing(job, done) or (options.changed and is_changed(job, done))]
    wanted += [Job.of(key) for key in options.again]
    wanted.sort(key=lambda job: job.gpus)  # those of one size together, so that no GPU waits
    if options.list:
        print("\n".join(job.key for job in wanted))
        return 0
    measurement = Measurement(options.results, options.work, 60 * options.minutes)
    for timed, devices in ((True, options.devices), (False, SHARED * options.devices)):
        some = [job for job in wanted if KINDS[job.kind].timed == timed]
        models = dict.fromkeys(["datasets", *(KINDS[job.kind].model for job in some)])
        tasks = [build(measurement, name) for name in models] + [task(measurement, job) for job in some]
        schedule.run(tasks, devices, measurement.left)
    done = results.read(options.results)
    missing = [job.key for job in wanted if is_missing(job, done)]
    print("missing or failed:", *(missing or ["none"]))
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main())
