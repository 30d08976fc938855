"""Run a converted script on CPU, every step of it, as its launcher starts it.

A rehearsal shortens trainings, replaces programs and draws, and sees what Python's audit hooks see. This does none of
that, so that it also measures launchers, what scripts print, and files that native code and programs write.

Each run has a fresh copy of the hub as its working directory; caches, logs and measurements lie outside it.
What comes back (`Run`) is what a test wants to know: the exit code, what each process printed, the losses and
gradient norms of each training, and which process wrote which file below the working directory.
"""

from __future__ import annotations

import functools
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from nb2ddp.rehearsal.run import free_port

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

HERE = Path(__file__).resolve().parent
SITE = HERE / "site"
# How torch, unsloth and `warnings` mark a record below the level of an error, up to the end of the record.
RECORD = re.compile(
    r"^(\[[\w.]+\|(INFO|WARNING)\].*|[IW]\d{4} \d\d:\d\d:\d\d\.\d+ .*|\S+:\d+: \w*Warning: .*(\n  .*)?)\n",
    re.MULTILINE,
)
LAUNCHER = -1  # stands for torchrun itself where a rank is asked for
Trainings = tuple[tuple["Step", ...], ...]


@dataclass(frozen=True)
class Step:
    """What the trainer logged after one step."""

    step: int
    loss: float
    grad_norm: float


@dataclass(frozen=True)
class Process:
    """One rank of a run: what it printed, and the logged steps of each training in turn."""

    stdout: str
    stderr: str
    trainings: Trainings

    @property
    def warnings(self) -> list[str]:
        """The warnings and remarks that libraries logged on stderr."""
        return [match[0] for match in RECORD.finditer(self.stderr)]

    @property
    def printed(self) -> str:
        """What was printed on stdout and stderr, progress bars included, without what was logged."""
        return self.stdout + RECORD.sub("", self.stderr)


@dataclass(frozen=True)
class Run:
    """One run of a script."""

    code: int  # 124 when it was stopped at the time limit
    seconds: float
    folder: Path  # its working directory
    launcher: str  # what the launcher printed, "" without one
    ranks: tuple[Process, ...]
    writers: dict[str, frozenset[int]]  # path below `folder` -> the ranks that wrote, made or removed it
    unseen: tuple[str, ...]  # paths that are new or changed although nobody was seen writing them

    @property
    def trainings(self) -> Trainings:
        """The steps of each training, as the main process logged them."""
        return self.ranks[0].trainings

    @property
    def shared(self) -> dict[str, frozenset[int]]:
        """The files that more than one process wrote, made or removed."""
        return {path: ranks for path, ranks in self.writers.items() if len(ranks) > 1}

    def problems(self) -> Iterator[str]:
        """What a run of a converted script must not show, one sentence each."""
        if self.code:
            yield f"ended with code {self.code}: {self.last_words()}"
        for rank, process in enumerate(self.ranks[1:], start=1):
            if process.printed:
                yield f"rank {rank} printed {process.printed[:500]!r}"
        for path, ranks in sorted(self.shared.items()):
            yield f"{path} was written by several processes: {sorted(ranks)}"
        for path in self.unseen:
            yield f"{path} was written by a process that could not be told"
        if not self.trainings:
            yield "no training step was logged"

    def last_words(self) -> str:
        """The end of what the first process that failed with a traceback said, else of all that was said."""
        said = [process.stderr for process in self.ranks] + [self.launcher]
        return next((text for text in said if "Traceback" in text), "\n".join(said))[-2500:]


@functools.cache
def recorder() -> Path:
    """The compiled `writes.c`."""
    library = Path(tempfile.mkdtemp(prefix="writes-")) / "writes.so"
    compile_it = [os.environ.get("CC", "cc"), "-shared", "-fPIC", "-O2", "-o", str(library)]
    subprocess.run([*compile_it, str(HERE / "writes.c"), "-ldl"], check=True)
    return library


def copy_hub(hub: Path, work: Path) -> None:
    """Copy `hub` to `work`; links that led to another place in `hub` lead to the same place in `work`."""
    shutil.copytree(hub, work, symlinks=True)
    for link in work.rglob("*"):
        if link.is_symlink() and link.readlink().is_relative_to(hub):
            target = work / link.readlink().relative_to(hub)
            link.unlink()
            link.symlink_to(target)


def snapshot(folder: Path) -> dict[str, tuple[int, int, int]]:
    """Inode, size and time of change of every file below `folder`."""
    found = {}
    for path in folder.rglob("*"):
        if path.is_symlink() or path.is_file():
            about = path.lstat()
            found[str(path.relative_to(folder))] = (about.st_ino, about.st_size, about.st_mtime_ns)
    return found


def read_writers(
    log: Path, work: Path, before: dict[str, tuple[int, int, int]], alone: bool
) -> tuple[dict[str, frozenset[int]], tuple[str, ...]]:
    """`Run.writers` and `Run.unseen`, from the recorder's log and from what has changed since `before`."""
    writers: dict[str, set[int]] = {}
    inodes: dict[int, int] = {}
    for line in log.read_text().splitlines() if log.exists() else ():
        rank, _, _, inode, path = line.split(" ", 4)
        who = int(rank) if rank != "-" else 0 if alone else LAUNCHER
        writers.setdefault(str(Path(path).relative_to(work)), set()).add(who)
        inodes[int(inode)] = who
    unseen = []
    for path, about in snapshot(work).items():
        if about != before.get(path) and path not in writers:
            # safetensors moves its file into place by a system call of its own: the inode stays.
            if about[0] in inodes:
                writers[path] = {inodes[about[0]]}
            else:
                unseen.append(path)
    return {path: frozenset(ranks) for path, ranks in writers.items()}, tuple(unseen)


def read_steps(file: Path) -> Trainings:
    """The logged steps of each training; a training begins where the step does not grow."""
    trainings: list[list[Step]] = []
    for line in file.read_text().splitlines() if file.exists() else ():
        logs = json.loads(line)
        if "loss" not in logs:
            continue
        step = Step(logs["step"], float(logs["loss"]), float(logs.get("grad_norm") or 0.0))
        if not trainings or step.step <= trainings[-1][-1].step:
            trainings.append([])
        trainings[-1].append(step)
    return tuple(map(tuple, trainings))


def observed(folder: Path, *sites: Path) -> dict[str, str]:
    """The environment of a run below `folder` whose writes are recorded; nothing of a launcher around us leaks in.

    `sites` are the folders of what Python loads at the start of each process, the first one first.
    """
    launched = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
    python_path = [*map(str, sites), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {
        **{name: value for name, value in os.environ.items() if name not in launched},
        "PYTHONPATH": os.pathsep.join(python_path),
        "HF_HUB_OFFLINE": "1",
        "HF_HOME": str(folder / "hf"),
        "LD_PRELOAD": str(recorder()),
        "WRITES_BELOW": str(folder / "work"),
        "WRITES_LOG": str(folder / "writes.log"),
    }


def environment(folder: Path, cuda_is_cpu: bool) -> dict[str, str]:
    """The environment of a run whose files lie in `folder`."""
    return {
        **observed(folder, SITE),
        "OMP_NUM_THREADS": "1",
        "XDG_CACHE_HOME": str(folder / "cache"),
        "STEPS_FOLDER": str(folder / "steps"),
        "CUDA_IS_CPU": str(int(cuda_is_cpu)),
    }


def run(
    script: Path,
    hub: Path,
    folder: Path,
    processes: int = 1,
    *,
    launcher: Sequence[str] | None = None,
    timeout: float = 600,
    cuda_is_cpu: bool = False,
) -> Run:
    """Run `script` in a copy of `hub` made in the new or empty folder `folder`.

    One process is `python SCRIPT`, several are `torchrun --nproc_per_node N SCRIPT`. `launcher` gives the words
    before SCRIPT instead; it must start `processes`, and what they print is then all under rank 0.
    `cuda_is_cpu` lets `.to("cuda")` pass without a GPU.
    """
    folder = folder.resolve()
    work, logs = folder / "work", folder / "logs"
    folder.mkdir(parents=True, exist_ok=True)
    copy_hub(hub.resolve(), work)
    for name in ("logs", "steps"):
        (folder / name).mkdir()
    torchrun = launcher is None and processes > 1
    if torchrun:
        launcher = [sys.executable, "-m", "torch.distributed.run", f"--nproc_per_node={processes}"]
        launcher += [f"--master_port={free_port()}", "--redirects=3", f"--log_dir={logs}"]
    elif launcher is None:
        launcher = [sys.executable]
    before = snapshot(work)
    start = time.monotonic()
    with (logs / "stdout.log").open("w") as stdout, (logs / "stderr.log").open("w") as stderr:
        job = subprocess.Popen(
            [*launcher, str(script.resolve())],
            cwd=work,
            env=environment(folder, cuda_is_cpu),
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            stderr=stderr,
            start_new_session=True,
        )
        try:
            code = job.wait(timeout)
        except subprocess.TimeoutExpired:
            os.killpg(job.pid, signal.SIGKILL)
            job.wait()
            code = 124
    seconds = time.monotonic() - start
    said = [(logs / f"{name}.log").read_text() for name in ("stdout", "stderr")]
    ranks = []
    for rank in range(processes):
        own = next(logs.glob(f"*/attempt_0/{rank}"), None) if torchrun else logs if rank == 0 else None
        text = [(own / f"{name}.log").read_text() if own else "" for name in ("stdout", "stderr")]
        ranks.append(Process(text[0], text[1], read_steps(folder / "steps" / f"{rank}.jsonl")))
    writers, unseen = read_writers(folder / "writes.log", work, before, alone=processes == 1)
    return Run(code, seconds, work, "".join(said) if torchrun else "", tuple(ranks), writers, unseen)


def difference(one: Trainings, other: Trainings, steps: int = 3) -> float:
    """The largest difference between the losses of two runs in the first `steps` steps of each training."""
    if [len(training) for training in one] != [len(training) for training in other]:
        return float("inf")
    pairs = (
        (a.loss, b.loss)
        for first, second in zip(one, other, strict=True)
        for a, b in zip(first[:steps], second[:steps], strict=True)
    )
    return max((abs(a - b) for a, b in pairs), default=float("inf"))
