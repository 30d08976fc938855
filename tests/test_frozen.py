"""The comparison of all scripts of two versions, on one notebook."""

from __future__ import annotations

from pathlib import Path

import pytest

from nb2ddp.options import Launch, Options
from tests import frozen
from tests.notebooks import write


def test_a_change_is_shown_once_with_all_that_have_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    notebooks = [write(tmp_path / "nb" / name) for name in ("a.ipynb", "b.ipynb")]
    frozen.convert_all(notebooks, tmp_path / "before")
    assert frozen.compare(notebooks, tmp_path / "before", tmp_path / "before") == (set(), {})
    monkeypatch.setitem(frozen.SETS, "uv", lambda: Options(launch=Launch(gpus=4, launcher="uv")))
    frozen.convert_all(notebooks, tmp_path / "after")
    differing, changes = frozen.compare(notebooks, tmp_path / "before", tmp_path / "after")
    assert differing == {"nb/a.ipynb", "nb/b.ipynb"}
    assert {frozenset(places) for places in changes.values()} == {frozenset(differing)}
    shown = "\n".join(places["nb/a.ipynb"] for places in changes.values())
    assert "train_ddp.py, options uv\n" in shown
    assert "convert again" not in shown
