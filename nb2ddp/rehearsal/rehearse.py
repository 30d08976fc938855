"""Rehearse one script: prepare a folder, run the script twice, judge the runs, and clean up."""

from __future__ import annotations

import contextlib
import json
import math
import os
import signal
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from nb2ddp.rehearsal import upstream
from nb2ddp.rehearsal.hub import Hub, answering_server
from nb2ddp.rehearsal.janitor import cleaned
from nb2ddp.rehearsal.plan import Plan
from nb2ddp.rehearsal.processes import Parent
from nb2ddp.rehearsal.run import Run, Started, environment, started
from nb2ddp.rehearsal.verdict import Verdict, judge

#: A socket's path has at most 103 characters (macOS; Linux 107). Of these, 65 are for names below the temporary folder.
_ROOM = 38
PATIENCE = 60.0  # seconds that the real hub and a process have for one repository


@dataclass(frozen=True)
class Options:
    """How to rehearse.

    Attributes:
        processes: the number of processes of the second run.
        steps: the number of steps of each training.
        limit: the time limit of each run, in seconds.
        trust: let the script start programs, reach the network and write anywhere.
        keep: a new folder that keeps all files of the rehearsal, or None.
        offline: do not ask the real hub for configurations, tokenizers and rows.
        data: a file of real rows for every source that is missing, or None.
    """

    processes: int = 2
    steps: int = 3
    limit: float = 300.0
    trust: bool = False
    keep: Path | None = None
    offline: bool = False
    data: Path | None = None


def rehearse(plan: Plan, options: Options, tell: Callable[[str], None] = lambda _: None) -> Verdict:
    """Train as one process and as several, and compare.

    Args:
        plan: the script.
        options: how to rehearse.
        tell: called from time to time with what happens.
    """
    with laid_out(plan, options, tell) as job:
        gate = job.root / "gate"
        several_ranks = job.root / f"{options.processes}-processes"
        # While one process trains, the others import. They read what it has learnt once the gate file exists.
        with job.started(plan, several_ranks, {"gate": str(gate)}) as ranks:
            alone = several = job.run(plan, job.root / "one", "one process", processes=1)
            if not alone.failed:
                gate.touch()
                several = job.ended(ranks, several_ranks.name)
        # Rows that are not on the hub are made where the script reads them.
        loads = {load: why if load[0] == "models" else "" for load, why in job.hub.offered.items()}
        judged = partial(judge, plan, alone, several, loads, job.hub.origins, trust=options.trust)
        if not (verdict := judged()).has_other_rows:
            return verdict
        return judged(again=job.run(plan, job.root / "again", "one process, again", processes=1))


@dataclass(frozen=True)
class Job:
    """What the runs of a rehearsal have in common."""

    root: Path
    options: Options
    hub: Hub
    server: int  #: the port of the server that replaces other servers
    starters: list[Parent]
    tell: Callable[[str], None]

    def started(
        self, plan: Plan, folder: Path, more: Mapping[str, object] | None = None, processes: int = 0
    ) -> AbstractContextManager[Started]:
        """Start a script in a folder, as the rehearsal's number of processes unless another number is given."""
        options = self.options
        settings = {
            "root": str(self.root),
            "steps": options.steps,
            "trust": options.trust,
            "server": self.server,
            "schema": str(self.root / "schema.json"),
            "data": str(options.data.resolve()) if options.data else "",
            **(more or {}),
        }
        environ = environment(plan, folder, settings) | {"HF_HUB_OFFLINE": "1", "HF_HUB_CACHE": str(self.hub.folder)}
        return started(plan, folder, processes or options.processes, environ=environ, starters=self.starters)

    def ended(self, ranks: Started, name: str) -> Run:
        """Wait for the end of started processes, and return their run."""
        tell, hub = self.tell, self.hub
        return ranks.ended(self.options.limit, lambda text: tell(f"{name}: {text}"), lambda: hub.is_building)

    def run(self, plan: Plan, folder: Path, name: str, processes: int = 0) -> Run:
        """Start a script, and wait for its end."""
        with self.started(plan, folder, processes=processes) as ranks:
            return self.ended(ranks, name)


@contextlib.contextmanager
def laid_out(plan: Plan, options: Options, tell: Callable[[str], None] = lambda _: None) -> Iterator[Job]:
    """Provide the folder, the stand-ins and the starters for runs of a script; see `rehearse`."""
    with own_folder(options.keep) as root, _starters(plan, root) as starters, answering_server() as server:
        builder = environment(plan, root, {}) | upstream.environment(offline=options.offline)
        build = partial(built, starters[-1], root / "tmp", builder)
        hub = Hub(root / "hub", build, plan.data, sees=plan.sees, models=plan.models)
        try:
            yield Job(root, options, hub, server, starters, tell)
        finally:
            hub.close()


@contextlib.contextmanager
def _starters(plan: Plan, root: Path) -> Iterator[list[Parent]]:
    """Provide one parent for the first process of a run, and one for the others: their sets have different orders."""
    environ, python = environment(plan, root, {}), plan.environment.python
    with contextlib.ExitStack() as stack:
        yield [stack.enter_context(contextlib.closing(Parent(environ, python))) for _ in range(2)]


def built(starter: Parent, folder: Path, environ: dict[str, str], request: dict[str, Any]) -> str:
    """Let a process build a repository of the hub; return what went wrong, or "".

    After a build has taken too long, the real hub is not asked again.
    """
    with tempfile.TemporaryDirectory(dir=folder) as own:
        output = Path(own, "build")
        process = starter.start("build", json.dumps(request), environment=environ, folder=folder, output=output)
        end = time.monotonic() + (PATIENCE if "HF_HUB_OFFLINE" not in environ else math.inf)
        while process.poll() is None:
            if time.monotonic() > end:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
                environ["HF_HUB_OFFLINE"] = "1"
                return built(starter, folder, environ, request)
            time.sleep(0.05)
        if not process.wait():
            return ""
        return Path(f"{output}.err").read_text(encoding="utf-8", errors="replace").strip().split("\n")[-1] or "?"


@contextlib.contextmanager
def own_folder(keep: Path | None) -> Iterator[Path]:
    """Provide the folder of a rehearsal, and move it to `keep` at the end; `janitor` does so after a fatal signal."""
    if keep is not None:
        keep.mkdir(parents=True, exist_ok=True)
    usual = os.path.realpath(tempfile.gettempdir())
    is_short = len(usual) <= _ROOM or not Path("/tmp").is_dir()
    root = Path(tempfile.mkdtemp(prefix="nb2ddp-", dir=usual if is_short else "/tmp")).resolve()
    with cleaned(root, keep):
        yield root
