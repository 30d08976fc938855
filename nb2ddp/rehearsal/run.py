"""Run a script as one process or as several, in a fresh folder, until it ends, waits forever, or takes too long."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import socket
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from nb2ddp.rehearsal.hub import DataHints
from nb2ddp.rehearsal.plan import Plan
from nb2ddp.rehearsal.processes import Parent, Process
from nb2ddp.rehearsal.stage.events import Event, read
from nb2ddp.rehearsal.stage.outside import LAUNCHED, SECRET
from nb2ddp.script.needs import untested
from nb2ddp.toml import tables

_VARIABLES = tables(__file__)
_PATIENCE = 20.0  # seconds without any computation after which processes count as waiting forever
_GRACE = 10.0  # seconds that the others have after one process has failed
Kind = TypeVar("Kind", bound=Event)


@dataclass(frozen=True)
class Rank:
    """One process of a run: how it ended, and its events."""

    code: int | None  #: None if it was stopped
    events: tuple[Event, ...]
    stack: str  #: where each of its threads was when it was stopped
    stderr: str  #: the end of what it printed there

    def seen(self, kind: type[Kind]) -> Iterator[Kind]:
        """Return its events of a kind, in order."""
        return (event for event in self.events if isinstance(event, kind))


@dataclass(frozen=True)
class Run:
    """One run of the script."""

    ranks: tuple[Rank, ...]
    seconds: float
    stopped: str  #: "" if it ended, else "waiting" or "limit"
    left: tuple[str, ...] = field(default=())  #: programs that outlived it

    @property
    def failed(self) -> bool:
        """Whether any process did not reach its end."""
        return bool(self.stopped or any(rank.code for rank in self.ranks))


def environment(plan: Plan, folder: Path, settings: Mapping[str, Any]) -> dict[str, str]:
    """Return the environment of a run below `folder`: the user's, without secrets, launchers, GPUs and folders."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not LAUNCHED.match(name) and not SECRET.search(name) and not name.startswith(("HF_", "WANDB_", "CUDA_"))
    }
    home = folder / "home"
    own = {"HOME": home, "XDG_CACHE_HOME": home / ".cache", "HF_HOME": home / "hf", "TMPDIR": folder / "tmp"}
    for path in (home, folder / "tmp"):
        path.mkdir(parents=True, exist_ok=True)
    hints = plan.data.get("", DataHints())
    about = {
        "logs": str(folder / "logs"),
        "unsloth": plan.unsloth,
        "rows": hints.rows,
        "splits": hints.splits,
        "beside": str(plan.folder),
        **settings,
    }
    absent = {name: "rehearsal" for name, is_needed in plan.variables.items() if is_needed}
    folders = {name: str(path) for name, path in own.items()}
    return {**absent, **kept, **folders, "NB2DDP_REHEARSAL": json.dumps(about), **_VARIABLES["fixed"]}


def free_port() -> int:
    """Return a port of this machine on which no process listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def launched(rank: int, processes: int, port: int, logs: Path) -> dict[str, str]:
    """Return the variables that torchrun sets for a process of a job on one machine; none for a job of one process."""
    table = _VARIABLES["launched"] if processes > 1 else {}
    return {name: value.format(rank=rank, processes=processes, port=port, logs=logs) for name, value in table.items()}


@contextlib.contextmanager
def started(
    plan: Plan, folder: Path, processes: int, *, environ: Mapping[str, str], starters: Sequence[Parent]
) -> Iterator[Started]:
    """Start the script's processes, and stop those that still run at the end of the block.

    Args:
        plan: the script.
        folder: a new folder for all files of the run.
        processes: the number of processes.
        environ: the environment of the processes, from `environment`.
        starters: one for the first process, one for the second, ...; the last one also starts the others.
    """
    work, logs = _laid_out(plan, folder)
    script, port = work / plan.name, free_port()
    jobs: list[Process] = []
    others: list[Process] = []
    try:
        if processes > 1:
            start_agent = starters[0].start
            others.append(start_agent("agent", str(port), environment=environ, folder=folder, output=logs / "agent"))
        for rank in range(processes):
            variables = {**environ, **launched(rank, processes, port, logs)}
            start_process = starters[min(rank, len(starters) - 1)].start
            jobs.append(start_process("play", str(script), environment=variables, folder=work, output=logs / str(rank)))
        yield Started(jobs, logs)
    finally:
        _stop([*jobs, *others])


@dataclass(frozen=True)
class Started:
    """The running processes of a script."""

    jobs: list[Process]
    logs: Path

    def ended(self, limit: float, tell: Callable[[str], None], is_served: Callable[[], bool] = lambda: False) -> Run:
        """Wait until the processes have ended, wait forever, or take too long.

        Args:
            limit: the time limit from now on, in seconds.
            tell: called from time to time with what happens.
            is_served: returns whether something is being built that a process waits for.
        """
        start = time.monotonic()
        stopped = _watch(self.jobs, self.logs, start + limit, tell, is_served)
        seconds = time.monotonic() - start
        codes = [job.poll() for job in self.jobs]
        if stopped:
            _ask_for_stacks(self.jobs)
        left = tuple(_below(self.jobs))
        _stop(self.jobs)
        return Run(tuple(_rank(self.logs, rank, code) for rank, code in enumerate(codes)), seconds, stopped, left)


def _laid_out(plan: Plan, folder: Path) -> tuple[Path, Path]:
    """Create a working folder with the script and the files that it reads, and a folder for logs."""
    work, logs = folder / "work", folder / "logs"
    for path in (work, logs):
        path.mkdir(parents=True, exist_ok=True)
    (work / plan.name).write_text(untested(plan.text), encoding="utf-8")
    for file in plan.files:
        copy = work / file.relative_to(plan.folder)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(file, copy)
    return work, logs


def _watch(
    jobs: list[Process],
    logs: Path,
    end: float,
    tell: Callable[[str], None],
    is_served: Callable[[], bool],
) -> str:
    """Wait until every process has ended or the run is hopeless; return "waiting", "limit" or ""."""
    used, still, failed = -1.0, time.monotonic(), None
    while any(job.poll() is None for job in jobs):
        now = time.monotonic()
        computed = sum(_computed(job.pid) for job in jobs if job.poll() is None)
        if computed > used + 0.3 or computed < used or is_served():
            used, still = computed, now
        if failed is None and any(job.poll() for job in jobs):
            failed = now
        if failed is not None and now > failed + _GRACE:
            return ""
        if now > still + _PATIENCE:
            return "waiting"
        if now > end:
            return "limit"
        tell(_doing(logs))
        time.sleep(0.25)
    return ""


def _computed(pid: int) -> float:
    """Return the seconds of computation of a process and its descendants."""
    import psutil

    total = 0.0
    with contextlib.suppress(psutil.Error):
        process = psutil.Process(pid)
        for each in (process, *process.children(recursive=True)):
            with contextlib.suppress(psutil.Error):
                times = each.cpu_times()
                total += times.user + times.system
    return total


def _doing(logs: Path) -> str:
    """Return what the first process is doing, by its last event."""
    file = logs / "0.jsonl"
    with contextlib.suppress(OSError, IndexError, ValueError):
        with file.open("rb") as lines:
            lines.seek(max(0, file.stat().st_size - 4000))
            event = json.loads(lines.read().splitlines()[-1])
        kind = re.sub(r"(?<!^)(?=[A-Z])", " ", event["kind"]).lower()
        return f"line {event['line']}: {kind}" if event.get("line") else kind
    return "starting"


def _ask_for_stacks(jobs: list[Process]) -> None:
    for job in jobs:
        if job.poll() is None:
            os.kill(job.pid, signal.SIGUSR1)
    time.sleep(1)


def _below(jobs: list[Process]) -> Iterator[str]:
    """Yield the programs that still run in the sessions of ended processes."""
    import psutil

    sessions = {job.pid for job in jobs if job.poll() is not None}
    for process in psutil.process_iter(["pid", "name", "status"]):
        with contextlib.suppress(OSError, psutil.Error):
            lives = process.info["status"] != psutil.STATUS_ZOMBIE
            if lives and process.pid not in sessions and os.getsid(process.pid) in sessions:
                yield str(process.info["name"])


def _stop(jobs: list[Process]) -> None:
    for job in jobs:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(job.pid, signal.SIGKILL)
        job.wait()


def _at_home(content: str, folder: str) -> str:
    """Return a text with the paths of the run's folder replaced by those that the user knows."""
    content = re.sub(rf"{re.escape(folder)}/work(/|\b)", lambda found: "" if found[1] else ".", content)
    for name, usual in (("home", "~"), ("tmp", "/tmp")):
        content = content.replace(f"{folder}/{name}", usual)
    return content.replace(f"{folder}/", "")


def _rank(logs: Path, rank: int, code: int | None) -> Rank:
    def text(kind: str) -> str:
        file = logs / f"{rank}.{kind}"
        content = file.read_text(encoding="utf-8", errors="replace") if file.exists() else ""
        return content if kind == "stack" else _at_home(content, str(logs.parent))

    events = []
    for line in text("jsonl").splitlines():
        with contextlib.suppress(ValueError):  # the last line of a process that was stopped
            events.append(read(json.loads(line)))
    return Rank(code, tuple(events), text("stack"), text("err")[-6000:])
