"""Scripts without a fault are ready; each planted fault is found and named at its line.

The tests rehearse a few of the faults, or all of them with NB2DDP_FAULTS=all (half an hour on two cores).
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import pytest

from nb2ddp.rehearsal import report
from nb2ddp.rehearsal.rehearse import Options, rehearse
from tests.rehearsals import read

from .faults import FAULTS, FOLDER, is_found

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

pytestmark = pytest.mark.e2e

TRAINS = "from transformers import Trainer\nTrainer(None).train()\n"
A_FEW = ("batch_not_split", "leaves_before_training", "save_by_all", "reward_with_random_numbers")
SOME = FAULTS if os.environ.get("NB2DDP_FAULTS") == "all" else A_FEW


@pytest.fixture
def short() -> Iterator[Path]:
    """A temporary folder with a path short enough for rehearsals."""
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder)


def test_no_false_alarm() -> None:
    verdict = rehearse(read(FOLDER / "train.py"), Options(offline=True))
    assert verdict.code == 0, "\n".join(report.text_lines(verdict))


#: The fault that a short run of all checks also rehearses.
SHORT = "batch_not_split"


@pytest.mark.parametrize("name", [pytest.param(n, marks=pytest.mark.short if n == SHORT else ()) for n in SOME])
def test_fault_is_named_at_its_line(name: str, tmp_path: Path) -> None:
    fault = FAULTS[name]
    script = tmp_path / f"{name}.py"
    script.write_text(fault.text())
    plan = read(script)
    verdict = rehearse(plan, Options(offline=True, limit=150))
    assert is_found(fault, plan, verdict), "\n".join(report.text_lines(verdict))


@contextlib.contextmanager
def heard() -> Iterator[None]:
    """Let started processes be interrupted: if tests run in the background, they inherit that SIGINT is ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


ENDS = {signal.SIGINT: 130, signal.SIGTERM: -15, signal.SIGKILL: -9}


@pytest.mark.parametrize(
    ("end", "reached"),
    [
        (signal.SIGINT, "*"),  # at its start
        (signal.SIGTERM, "*/one/logs/0.jsonl"),  # during its training
        (signal.SIGKILL, "*/one/logs/0.jsonl"),
    ],
)
def test_nothing_is_left_behind(end: signal.Signals, reached: str, short: Path) -> None:
    command = [sys.executable, "-m", "nb2ddp", "rehearse", "--offline", str(FOLDER / "train.py")]
    with heard():
        job = subprocess.Popen(command, env={**os.environ, "TMPDIR": str(short)}, start_new_session=True)
    wait_for(lambda: list(short.glob(f"nb2ddp-{reached}")))
    started = psutil.Process(job.pid).children(recursive=True)
    job.send_signal(end)
    assert job.wait(60) == ENDS[end]
    assert psutil.wait_procs(started, timeout=20)[1] == []
    if end is not signal.SIGINT:  # another process notices this end and cleans up
        wait_for(lambda: not list(short.iterdir()))
    assert list(short.iterdir()) == []


def test_what_a_killed_rehearsal_has_started_is_killed(tmp_path: Path, short: Path) -> None:
    """This includes processes that have left its session."""
    script = tmp_path / "train.py"
    script.write_text(f"import subprocess\nsubprocess.run(['sleep', '6000'], start_new_session = True)\n{TRAINS}")
    command = [sys.executable, "-m", "nb2ddp", "rehearse", "--offline", "--trust", str(script)]
    job = subprocess.Popen(command, env={**os.environ, "TMPDIR": str(short)}, start_new_session=True)

    def sleeps() -> list[psutil.Process]:
        return [each for each in psutil.Process(job.pid).children(recursive=True) if each.name() == "sleep"]

    wait_for(sleeps)
    (started,) = sleeps()
    job.kill()
    job.wait()
    assert psutil.wait_procs([started], timeout=20)[1] == []
    wait_for(lambda: not list(short.iterdir()))


def wait_for(what: Callable[[], object]) -> None:
    deadline = time.monotonic() + 120
    while not what():
        assert time.monotonic() < deadline
        time.sleep(0.1)
