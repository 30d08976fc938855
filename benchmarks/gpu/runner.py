"""Run one job on its GPUs and report what happened."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Sequence
from pathlib import Path

from benchmarks.gpu.kinds import KINDS, Job
from benchmarks.gpu.results import Facts
from benchmarks.gpu.scripts import script_hash, write
from nb2ddp.rehearsal.run import free_port

SITE = Path(__file__).parent / "site"
ROOT = SITE.parents[2]


def events_of(file: Path) -> list[list[Facts]]:
    """Return the events of each training that a process recorded."""
    trainings: list[list[Facts]] = []
    for line in file.read_text().splitlines() if file.exists() else ():
        event = json.loads(line)
        if event["event"] == "begin":
            trainings.append([])
        trainings[-1].append(event)
    return trainings


def only(events: Sequence[Facts], name: str) -> list[Facts]:
    return [event for event in events if event["event"] == name]


def rows_seen(ends: Sequence[Facts]) -> Facts:
    """Return the number of rows that the processes trained on together, and a hash of these rows."""
    rows = [row for end in ends for batch in end["fetched"][: end["micro_batches"]] for row in batch]
    return {
        "rows": len(rows),
        "which": hashlib.sha256(json.dumps(sorted(set(rows))).encode()).hexdigest()[:16],
    }


def training(ranks: Sequence[Sequence[Facts]], launched: float) -> Facts:
    """Return one training as its processes recorded it. Times are in seconds after the launch."""
    main = ranks[0]
    begin, ends = main[0], [end for events in ranks for end in only(events, "end")]
    kept = ("step", "loss", "grad_norm", "reward", "reward_std")
    facts: Facts = {
        "per_device": begin["per_device"],
        "accumulation": begin["accumulation"],
        "began": round(begin["time"] - launched, 3),
        "steps": [
            {"at": round(event["time"] - launched, 4), **{name: event[name] for name in kept if name in event}}
            for event in only(main, "step")
        ],
    }
    if ends:
        facts |= {
            "ended": round(ends[0]["time"] - launched, 3),
            "weights": [end["weights"] for end in ends],
            "memory": [end["memory"] for end in ends],
            **rows_seen(ends),
        }
    return facts


def without_folders(text: str, work: Path) -> str:
    """Return `text` with files named relative to the working directory or a folder that Python imports from."""
    for folder in sorted((str(work), *sys.path), key=len, reverse=True):
        text = text.replace(f"{folder}/", "") if folder else text
    return text


def environment(folder: Path, devices: Sequence[str], mark: str, steps: int) -> dict[str, str]:
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(SITE), str(ROOT), os.environ.get("PYTHONPATH", "")]),
        "HF_HUB_OFFLINE": "1",
        "HF_HOME": str(folder / "hf"),
        "CUDA_VISIBLE_DEVICES": ",".join(devices),
        "OMP_NUM_THREADS": "8",
        "BENCH_STEPS": str(steps),
        "BENCH_FOLDER": str(folder / "events"),
        "BENCH_RUN": mark,
        "PYTHONFAULTHANDLER": "1",  # print the stack of every thread when a run is aborted
    }


def running(mark: str) -> dict[int, str]:
    """Return the processes that have `mark` in their environment, with their command lines."""
    found = {}
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if mark.encode() in (process / "environ").read_bytes():
                found[int(process.name)] = (process / "cmdline").read_bytes().replace(b"\0", b" ").decode()[:200]
    return found


def stop(mark: str) -> None:
    """End every process that has `mark` in its environment. Python processes first print the stacks of their threads.

    A launcher's workers are sessions of their own: ending its process group would leave them behind.
    """
    for number in (signal.SIGABRT, signal.SIGKILL):
        for process in running(mark):
            with contextlib.suppress(OSError):
                os.kill(process, number)
        time.sleep(5)


def run(job: Job, hub: Path, folder: Path, devices: Sequence[str], timeout: float) -> Facts:
    """Run a job in the new folder `folder`, with the models and data of `hub` in its working directory.

    Args:
        devices: the GPUs that the job may see, as many as it has processes.
        timeout: seconds after which the job is killed.
    """
    work, mark = folder / "work", uuid.uuid4().hex
    command = write(job, work)
    script = script_hash(work)
    for entry in hub.iterdir():
        if not entry.name.startswith("."):
            (work / entry.name).symlink_to(entry, target_is_directory=True)
    (folder / "events").mkdir()
    words = [sys.executable, *command[1:]]
    if command[0] == "accelerate":
        port = ["--main_process_port", str(free_port())]
        words = [sys.executable, "-m", "accelerate.commands.launch", *port, *command[2:]]
    env = environment(folder, devices, mark, KINDS[job.kind].steps)
    start = time.time()
    with (folder / "log.txt").open("w") as log:
        process = subprocess.Popen(
            words, cwd=work, env=env, stdout=log, stderr=subprocess.STDOUT, start_new_session=True
        )
        try:
            code = process.wait(timeout)
        except subprocess.TimeoutExpired:
            stop(f"BENCH_RUN={mark}")
            process.wait()
            code = 124
    took = time.time() - start
    time.sleep(1)
    left = list(running(f"BENCH_RUN={mark}").values())
    if left:
        stop(f"BENCH_RUN={mark}")
    by_rank = [events_of(folder / "events" / f"{rank}.jsonl") for rank in range(job.gpus)]
    output = without_folders((folder / "log.txt").read_text(errors="replace"), work)
    facts: Facts = {
        "command": " ".join(command),
        "script": script,
        "exit_code": code,
        "seconds": round(took, 2),
        "left_running": left,
        "trainings": [training(ranks, start) for ranks in zip(*by_rank, strict=False)],
        "warnings": sorted({line for line in output.splitlines() if "Warning" in line or "[W" in line})[:20],
    }
    if code:
        facts["said"] = output[-12000:]
    shutil.rmtree(work, ignore_errors=True)
    return facts
