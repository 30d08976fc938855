"""Build one repository of the stand-in hub: `build REQUEST`, where the request is JSON."""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Any


def build(request: dict[str, Any]) -> None:
    """Make the repository of a request in its folder, all of it or nothing."""
    from . import models, rows

    folder = Path(request["folder"])
    with tempfile.TemporaryDirectory(dir=folder.parent) as made:
        if request["type"] == "models":
            models.build_model(request["name"], Path(made))
        else:
            hints = {key: request[key] for key in ("used", "splits", "configs", "rows")}
            rows.build_dataset(request["name"], Path(made), **hints)
        Path(made).chmod(0o755)
        Path(made).rename(folder)
        Path(made).mkdir()


def main() -> int:
    """Build what the command line asks for.

    Returns:
        0, or 1 where that is not possible; the last line on standard error says why.
    """
    request = json.loads(sys.argv[2])
    try:
        build(request)
    except Exception as error:
        print(f"{type(error).__name__}: {error}".replace("\n", " "), file=sys.stderr)
        return 1
    return 0
