"""Helpers for tests of the command."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from click.testing import Result

Command = Callable[..., Result]


def read(path: str) -> str:
    """Return the text of a file in the test's folder."""
    return Path(path).read_text(encoding="utf-8")


def files(folder: str | Path = ".") -> set[str]:
    """Return the files below a folder, except hidden files and files that list packages."""
    found = {path.relative_to(folder).as_posix() for path in Path(folder).rglob("*") if path.is_file()}
    return {name for name in found if not name.startswith(".") and ".requirements" not in name}
