"""Measure what is missing: `python -m benchmarks.gpu`.

Builds the models and the data in the folder `--work`, converts the notebooks, runs every job of `kinds.py` whose result
is missing or failed, one after the other, and writes the results after each. Needs as many GPUs as a job has processes,
the `train` extra, and no network.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
from pathlib import Path

from benchmarks.gpu import results
from benchmarks.gpu.kinds import KINDS, Job, jobs
from benchmarks.gpu.report import RESULTS
from benchmarks.gpu.runner import run


def build(hub: Path, name: str) -> None:
    """Build a model, or the data sets, unless an earlier measurement did."""
    done = hub / ".built" / name
    if not done.exists():
        subprocess.run([sys.executable, "-m", "benchmarks.gpu.hub", str(hub), name], check=True)
        done.parent.mkdir(parents=True, exist_ok=True)
        done.touch()


def is_missing(job: Job, done: dict[str, results.Facts]) -> bool:
    return job.key not in done or bool(done[job.key]["exit_code"])


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu")
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--work", type=Path, default=Path("/tmp/bench"))
    parser.add_argument("--devices", nargs="+", default=["0", "1", "2", "3"], metavar="GPU")
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=list(KINDS), metavar="KIND")
    parser.add_argument("--again", nargs="+", default=[], metavar="KEY", help="run these too, as sft_3b/converted/4#2")
    options = parser.parse_args()
    done, hub = results.read(options.results), options.work.resolve() / "hub"
    wanted = [job for job in jobs() if job.kind in options.kinds and job.gpus <= len(options.devices)]
    wanted = [job for job in wanted if is_missing(job, done)] + [Job.of(key) for key in options.again]
    for job in wanted:
        for name in ("datasets", KINDS[job.kind].model):
            build(hub, name)
        folder = options.work.resolve() / "runs" / job.key.replace("/", "-").replace("#", "-")
        shutil.rmtree(folder, ignore_errors=True)
        facts = run(job, hub, folder, options.devices[: job.gpus], timeout=3 * KINDS[job.kind].seconds)
        print(job.key, "code", facts["exit_code"], f"{facts['seconds']:.0f} s", results.summary(facts), flush=True)
        results.add(options.results, job.key, facts)
    done = results.read(options.results)
    missing = [job.key for job in wanted if is_missing(job, done)]
    print("missing or failed:", *(missing or ["none"]))
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main())
