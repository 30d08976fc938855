"""What each observer of a rehearsal sees in a job of two processes, which are copies of one warm parent."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

import pytest

from nb2ddp.rehearsal.evidence import Both, Place, end_of
from nb2ddp.rehearsal.plan import Plan
from nb2ddp.rehearsal.processes import Parent
from nb2ddp.rehearsal.questions import QUESTIONS, Answer, State
from nb2ddp.rehearsal.run import Run, environment, started
from nb2ddp.rehearsal.stage import events

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = [pytest.mark.e2e, pytest.mark.skipif(sys.platform != "linux", reason="copies need a fork")]

BEGIN = """import os, subprocess, sys, threading, time
import torch, torch.distributed as dist
rank = int(os.environ["RANK"])
dist.init_process_group("gloo")
"""


@pytest.fixture(scope="module")
def parent() -> Iterator[Parent]:
    made = Parent(os.environ, sys.executable)
    yield made
    made.close()


def job(text: str, parent: Parent, folder: Path) -> Both:
    """Run a script as two processes."""
    plan = Plan("train.py", BEGIN + text, folder, ("Trainer",), "", (), {}, ())
    settings: dict[str, object] = {"root": str(folder), "steps": 1, "trust": False, "data": "", "server": 9}
    environ = environment(plan, folder, settings | {"schema": str(folder / "schema.json")})
    with started(plan, folder, 2, environ=environ, starters=[parent]) as ranks:
        run = ranks.ended(limit=200, tell=lambda _: None)
    return Both(plan, Run(run.ranks[:1], 1.0, ""), run)


def answer(both: Both, question: str) -> Answer:
    """Return the answer to the question whose text starts with `question`."""
    return next(ask for text, ask in QUESTIONS if text.startswith(question))(both)


def texts(places: tuple[Place, ...]) -> set[str]:
    return {place.text for place in places}


def test_what_both_write_start_and_read_too_early(parent: Parent, tmp_path: Path) -> None:
    both = job(
        """open("by_all.txt", "w").close()
subprocess.run(["serve", "--port", "1"])
subprocess.run(["nvidia-smi"])
import sqlite3
sqlite3.connect("rows.db")
if rank == 0:
    open("by_main.txt", "w").close()
    open("waited_for.txt", "w").close()
time.sleep(1)
print(os.path.getsize("by_main.txt"), open("by_main.txt").read())
dist.barrier()
open("waited_for.txt").read()
dist.destroy_process_group()
""",
        parent,
        tmp_path,
    )
    state, _, places = answer(both, "each file, program")
    assert state is State.FAULT
    assert texts(places) == {
        "by_all.txt is written by ranks 0, 1",
        "rows.db is written by ranks 0, 1",
        "serve --port 1 is started by ranks 0, 1",
        "rank 1 reads by_main.txt, which rank 0 writes, without waiting for it",
    }


def test_where_calls_part(parent: Parent, tmp_path: Path) -> None:
    text = "dist.all_reduce(torch.ones(3))\nif rank == 0:\n    dist.destroy_process_group()\n"
    state, measured, places = answer(job(text, parent, tmp_path), "same collective calls")
    assert (state, measured) == (State.FAULT, "ranks 0 and 1 differ at call 3")
    assert places[0].text == "rank 0 calls destroy_process_group"


def test_what_stays_behind(parent: Parent, tmp_path: Path) -> None:
    both = job(
        """import atexit
kept = subprocess.Popen(["serve", "a"])
atexit.register(subprocess.Popen(["serve", "b"]).terminate)
threading.Thread(target=time.sleep, args=(8,), name="watcher").start()
""",
        parent,
        tmp_path,
    )
    state, _, places = answer(both, "after training")
    assert state is State.FAULT
    assert {"rank 0 leaves serve a running", "rank 1 leaves watcher running"} <= texts(places)
    assert not any("serve b" in text for text in texts(places))
    assert all(any(left.group for left in rank.seen(events.Left)) for rank in both.job.ranks)


def test_what_is_not_there_does_nothing(parent: Parent, tmp_path: Path) -> None:
    both = job(
        """import no_such_package_at_all as page
import wandb
@page.tool
def kept(): return 1
@page.settings.of(3)
def lost(): return 1
assert kept() == 1 and lost() == 1
assert f"{page.a / 'rows.csv'}" == os.fspath(page.b(1).c[2]) == "rehearsal"
assert float(1 - page.score() / 2) == 0 and page.score() < 1
assert [*page.rows()] == []
wandb.init(project="a")
dist.destroy_process_group()
""",
        parent,
        tmp_path,
    )
    assert [rank.code for rank in both.job.ranks] == [0, 0], both.job.ranks[0].stderr
    absent = {event.name: event.package for event in both.one.seen(events.StandIn)}
    assert absent == {"no_such_package_at_all": True, "wandb": False}
    assert texts(answer(both, "each file, program")[2]) == {"a run of wandb is begun by ranks 0, 1"}


@pytest.mark.parametrize(
    ("text", "about"),
    [
        ("import socket\nsocket.create_connection(('example.com', 80))", {"host": "example.com", "refused": True}),
        ("open('/opt/rows.txt', 'w')", {"host": "", "refused": True}),
        ("raise ValueError('mine')", {"host": "", "refused": False, "raised": True, "line": 5}),
    ],
)
def test_what_ends_a_process(text: str, about: dict[str, object], parent: Parent, tmp_path: Path) -> None:
    end = end_of(job(text, parent, tmp_path).one)
    assert end.code == 1
    assert {name: getattr(end, name) for name in about} == about
