"""Measure the missing results: `python -m benchmarks.gpu`.

This builds the models and the data in the folder `--work`, converts the notebooks, and runs every job of `kinds.py`
whose result is missing or failed. It runs as many jobs at a time as there are GPUs for, and writes the results after
each. It needs as many GPUs as a job has processes, the `train` extra, and no network.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import Queue
from threading import Lock

from benchmarks.gpu import results
from benchmarks.gpu.kinds import KINDS, Job, jobs
from benchmarks.gpu.report import RESULTS
from benchmarks.gpu.runner import run

ADDING = Lock()


def build(hub: Path, name: str) -> None:
    """Build a model, or the data sets, unless an earlier measurement did."""
    done = hub / ".built" / name
    if not done.exists():
        subprocess.run([sys.executable, "-m", "benchmarks.gpu.hub", str(hub), name], check=True)
        done.parent.mkdir(parents=True, exist_ok=True)
        done.touch()


def is_missing(job: Job, done: dict[str, results.Facts]) -> bool:
    return job.key not in done or bool(done[job.key]["exit_code"])


def measure(job: Job, hub: Path, options: argparse.Namespace, free: Queue[list[str]]) -> None:
    """Run a job on the next GPUs that are free, and add its result."""
    folder = options.work.resolve() / "runs" / job.key.replace("/", "-")
    shutil.rmtree(folder, ignore_errors=True)
    devices = free.get()
    try:
        facts = run(job, hub, folder, devices, timeout=3 * KINDS[job.kind].seconds)
    finally:
        free.put(devices)
    with ADDING:
        print(job.key, "code", facts["exit_code"], f"{facts['seconds']:.0f} s", results.summary(facts), flush=True)
        results.add(options.results, job.key, facts)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu")
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--work", type=Path, default=Path("/tmp/bench"))
    parser.add_argument("--devices", nargs="+", default=["0", "1", "2", "3"], metavar="GPU")
    parser.add_argument("--only", nargs="+", default=[""], metavar="KEY", help="these, as sft_3b or sft_3b/converted/4")
    options = parser.parse_args()
    done, hub = results.read(options.results), options.work.resolve() / "hub"
    wanted = [job for job in jobs() if job.key.startswith(tuple(options.only)) and job.gpus <= len(options.devices)]
    wanted = [job for job in wanted if is_missing(job, done)]
    for name in dict.fromkeys(KINDS[job.kind].model for job in wanted):
        build(hub, name)
    build(hub, "datasets")
    for gpus in (4, 2, 1):
        free: Queue[list[str]] = Queue()
        for first in range(0, len(options.devices) - gpus + 1, gpus):
            free.put(options.devices[first : first + gpus])
        with ThreadPoolExecutor(max(1, free.qsize())) as pool:
            runs = [pool.submit(measure, job, hub, options, free) for job in wanted if job.gpus == gpus]
        for one in runs:
            one.result()  # raises the exception of the run
    done = results.read(options.results)
    missing = [job.key for job in wanted if is_missing(job, done)]
    print("missing or failed:", *(missing or ["none"]))
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main())
