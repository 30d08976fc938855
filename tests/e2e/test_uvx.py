"""A command that a person types on a machine on which only uv is installed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from nb2ddp.rehearsal import uv

ROOT = Path(__file__).resolve().parents[2]
NOTEBOOK = "fixtures/notebooks/alpaca.ipynb"
LIMIT = 420  # seconds; most of them for downloads, the first time

pytestmark = pytest.mark.e2e


def test_a_notebook_is_rehearsed_where_nothing_is_installed() -> None:
    """The rehearsal uses the versions that the notebook asks for."""
    program = uv.found()
    if program is None:
        pytest.skip("uv is not there")
    environ = {name: value for name, value in uv.settings().items() if name not in ("VIRTUAL_ENV", "PYTHONPATH")}
    uvx = [program, "tool", "run", "--python", sys.executable, "--from", str(ROOT), "nb2ddp"]
    done = subprocess.run(
        [*uvx, "rehearse", "--offline", NOTEBOOK],
        cwd=ROOT,
        env={**environ, "PATH": os.defpath},
        capture_output=True,
        text=True,
        timeout=LIMIT,
        check=False,
    )
    if "error sending request" in done.stderr or "Failed to fetch" in done.stderr:
        pytest.skip("no package index answers")
    assert done.returncode == 0, done.stdout + done.stderr
    first, second = done.stdout.splitlines()[:2]
    assert first == "alpaca.py: ready: 2 processes train as one does"
    assert "in the notebook's versions, as " in second
