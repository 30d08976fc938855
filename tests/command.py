"""What tests of the command share."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from click.testing import Result

Command = Callable[..., Result]


def read(path: str) -> str:
    """The text of a file of the test's folder."""
    return Path(path).read_text(encoding="utf-8")


def files(folder: str | Path = ".") -> set[str]:
    """The files below a folder, except hidden ones and those that list packages."""
    found = {path.relative_to(folder).as_posix() for path in Path(folder).rglob("*") if path.is_file()}
    return {name for name in found if not name.startswith(".") and ".requirements" not in name}
