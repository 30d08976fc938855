"""The processes of a rehearsal match those of torchrun: their environment, how they meet, and how they end."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest

from nb2ddp.rehearsal.plan import Plan
from nb2ddp.rehearsal.processes import Parent
from nb2ddp.rehearsal.run import Run, environment, free_port, started

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.e2e

TELLS = """
import json, os
with open(f"told_{os.environ['RANK']}.json", "w") as file:
    json.dump(dict(os.environ), file)
"""
#: Rank 0 ends first; the store in which the processes met remains until the last one ends.
MEETS = """
import os, threading
import torch.distributed as dist
dist.init_process_group("gloo")
dist.barrier()
if os.environ["RANK"] == "0":
    os._exit(0)
threading.Event().wait(2)
store = dist.distributed_c10d._get_default_store()
store.set("still", "there")
assert store.get("still") == b"there"
"""
FAILS = """
import os, threading
if os.environ["RANK"] == "1":
    raise OSError("the data is gone")
threading.Event().wait()
"""

#: When the first process ends, only gloo's thread holds the gathered tensors, and it is still freeing them.
SLOW_THREAD = """
import time
import torch
import torch.distributed as dist

class Slow(torch.Tensor):
    def __del__(self):
        end = time.monotonic() + 0.1
        while time.monotonic() < end:
            time.sleep(0.001)

dist.init_process_group("gloo")
group = dist.group.WORLD  # as a wrapped model holds it
time.sleep(0.05 * dist.get_rank())
dist.all_gather([torch.ones(1).as_subclass(Slow), torch.ones(1)], torch.ones(1), async_op=True)
time.sleep(0.1)
dist.destroy_process_group()
"""


@pytest.fixture(scope="module")
def starter() -> Iterator[Parent]:
    made = Parent(os.environ, sys.executable)
    yield made
    made.close()


def rehearsed(text: str, starter: Parent, folder: Path) -> Run:
    plan = Plan("train.py", text, folder, ("Trainer",), "", (), {}, ())
    settings: dict[str, object] = {"root": str(folder), "steps": 1, "trust": False, "missing": None}
    settings |= {"schema": str(folder / "schema.json"), "data": "", "server": 9}
    environ = environment(plan, folder, settings)
    with started(plan, folder, 2, environ=environ, starters=[starter]) as ranks:
        return ranks.ended(limit=100, tell=lambda _: None)


def added_environment(folder: Path, rank: int, before: dict[str, str]) -> dict[str, str]:
    """Return the variables that the launcher adds to the environment of a process."""
    environ = json.loads((folder / f"told_{rank}.json").read_text())
    return {name: value for name, value in environ.items() if before.get(name) != value}


def test_environment_is_that_of_torchrun(starter: Parent, tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(TELLS)
    before = {name: value for name, value in os.environ.items() if name != "OMP_NUM_THREADS"}
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=2", f"--master-port={free_port()}"]
    subprocess.run([*command, str(script)], env=before, cwd=tmp_path, check=True)
    assert [rank.code for rank in rehearsed(TELLS, starter, tmp_path / "rehearsed").ranks] == [0, 0]
    for rank in range(2):
        real = added_environment(tmp_path, rank, before)
        ours = {name: added_environment(tmp_path / "rehearsed" / "work", rank, {}).get(name) for name in real}
        for name in ("MASTER_PORT", "TORCHELASTIC_ERROR_FILE"):  # they differ for each job
            assert real.pop(name)
            assert ours.pop(name)
        assert ours == real


def test_processes_meet_in_a_store_of_the_launcher(starter: Parent, tmp_path: Path) -> None:
    done = rehearsed(MEETS, starter, tmp_path)
    assert [rank.code for rank in done.ranks] == [0, 0], done.ranks[1].stderr


def test_failure_of_one_ends_the_others(starter: Parent, tmp_path: Path) -> None:
    start = time.monotonic()
    done = rehearsed(FAILS, starter, tmp_path)
    assert time.monotonic() - start < 90
    assert [rank.code for rank in done.ranks] == [None, 1]
    assert "the data is gone" in done.ranks[1].stderr


def test_processes_end_well_while_gloo_still_frees_tensors(starter: Parent, tmp_path: Path) -> None:
    done = rehearsed(SLOW_THREAD, starter, tmp_path)
    assert [rank.code for rank in done.ranks] == [0, 0], done.ranks[0].stderr
