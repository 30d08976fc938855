"""What tests of the command share."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from click.testing import Result

Command = Callable[..., Result]


def files(folder: Path) -> set[str]:
    """The files below a folder, except hidden ones and those that list packages."""
    found = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
    return {name for name in found if not name.startswith(".") and ".requirements" not in name}
