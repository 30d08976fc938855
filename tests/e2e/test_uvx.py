"""A command that a person types on a machine on which only uv is installed."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.e2e.with_uv import with_uv

ROOT = Path(__file__).resolve().parents[2]
NOTEBOOK = "fixtures/notebooks/alpaca.ipynb"
LIMIT = 420  # seconds; most of them for downloads, the first time

pytestmark = pytest.mark.e2e


def test_a_notebook_is_rehearsed_where_nothing_is_installed() -> None:
    """The rehearsal uses the versions that the notebook asks for."""
    done = with_uv("--from", str(ROOT), "nb2ddp", "rehearse", "--offline", NOTEBOOK, folder=ROOT, seconds=LIMIT)
    first, second = done.stdout.splitlines()[:2]
    assert first == "alpaca.py: ready: 2 processes train as one does"
    assert "in the notebook's versions, as " in second
