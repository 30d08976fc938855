"""Run a script as one process or as several, in a fresh folder, until it ends, waits for ever, or takes too long."""

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
_PATIENCE = 20.0  # seconds without any computation after which processes wait for ever
_GRACE = 10.0  # seconds that the others have after one process has failed
Kind = TypeVar("Kind", bound=Event)


@dataclass(frozen=True)
class Rank:
    """One process of a run: how it ended, and what it saw."""

    code: int | None  #: None where it was stopped
    events: tuple[Event, ...]
    stack: str  #: where each of its threads was when it was stopped
    said: str  #: the end of what it printed on stderr

    def seen(self, kind: type[Kind]) -> Iterator[Kind]:
        """Its events of a kind, in order."""
        return (event for event in self.events if isinstance(event, kind))


@dataclass(frozen=True)
class Run:
    """One run of the script."""

    ranks: tuple[Rank, ...]
    seconds: float
    stopped: str  #: "" where it ended; "waiting" or "limit"
    left: tuple[str, ...] = field(default=())  #: programs that outlived it

    @property
    def failed(self) -> bool:
        """Whether not every process has reached its end."""
        return bool(self.stopped or any(rank.code for rank in self.ranks))


def environment(plan: Plan, folder: Path, settings: Mapping[str, Any]) -> dict[str, str]:
    """The environment of a run below `folder`: the user's, without secrets, launchers, GPUs and own folders."""
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
    """A port of this machine that nobody listens at."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def launched(rank: int, processes: int, port: int, logs: Path) -> dict[str, str]:
    """What torchrun tells each process of a job on one machine; nothing for a job of one process."""
    told = _VARIABLES["launched"] if processes > 1 else {}
    return {name: value.format(rank=rank, processes=processes, port=port, logs=logs) for name, value in told.items()}


@contextlib.contextmanager
def started(
    plan: Plan, folder: Path, processes: int, *, environ: Mapping[str, str], starters: Sequence[Parent]
) -> Iterator[Started]:
    """Start the script's processes; those that live at the end of the block are stopped.

    Args:
        plan: the script.
        folder: a new folder, below which everything happens.
        processes: how many.
        environ: of the processes, from `environment`.
        starters: of the first process, of the second, ...; the last one starts the others too.
    """
    work, logs = _laid_out(plan, folder)
    script, port = work / plan.name, free_port()
    jobs: list[Process] = []
    others: list[Process] = []
    try:
        if processes > 1:
            start_agent = starters[0].start
            others.append(start_agent("agent", str(port), environment=environ, folder=folder, said=logs / "agent"))
        for rank in range(processes):
            told = {**environ, **launched(rank, processes, port, logs)}
            start_process = starters[min(rank, len(starters) - 1)].start
            jobs.append(start_process("play", str(script), environment=told, folder=work, said=logs / str(rank)))
        yield Started(jobs, logs)
    finally:
        _stop([*jobs, *others])


@dataclass(frozen=True)
class Started:
    """A script's processes, which run."""

    jobs: list[Process]
    logs: Path

    def ended(self, limit: float, tell: Callable[[str], None], is_served: Callable[[], bool] = lambda: False) -> Run:
        """Wait until they have ended, wait for ever, or take too long.

        Args:
            limit: seconds that they have from now on.
            tell: called with what happens, now and then.
            is_served: whether something is made that a process waits for.
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
    """A working folder with the script and the files that it reads, and a folder for logs."""
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
    """Wait until every process has ended, or until that has become hopeless; say why in that case."""
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
    """Seconds of computation of a process and the processes below it."""
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
    """What the first process is at, by its last event."""
    file = logs / "0.jsonl"
    with contextlib.suppress(OSError, IndexError, ValueError):
        with file.open("rb") as lines:
            lines.seek(max(0, file.stat().st_size - 4000))
            event = json.loads(lines.read().splitlines()[-1])
        kind = event["kind"].lower()
        return f"line {event['line']}: {kind}" if event.get("line") else kind
    return "starting"


def _ask_for_stacks(jobs: list[Process]) -> None:
    for job in jobs:
        if job.poll() is None:
            os.kill(job.pid, signal.SIGUSR1)
    time.sleep(1)


def _below(jobs: list[Process]) -> Iterator[str]:
    """Programs of the sessions of processes that have ended."""
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


def _at_home(said: str, folder: str) -> str:
    """A text without the folder of the run: what stands in it is the user's."""
    said = re.sub(rf"{re.escape(folder)}/work(/|\b)", lambda found: "" if found[1] else ".", said)
    for name, usual in (("home", "~"), ("tmp", "/tmp")):
        said = said.replace(f"{folder}/{name}", usual)
    return said.replace(f"{folder}/", "")


def _rank(logs: Path, rank: int, code: int | None) -> Rank:
    def text(kind: str) -> str:
        file = logs / f"{rank}.{kind}"
        said = file.read_text(encoding="utf-8", errors="replace") if file.exists() else ""
        return said if kind == "stack" else _at_home(said, str(logs.parent))

    events = []
    for line in text("jsonl").splitlines():
        with contextlib.suppress(ValueError):  # the last line of a process that was stopped
            events.append(read(json.loads(line)))
    return Rank(code, tuple(events), text("stack"), text("err")[-6000:])
