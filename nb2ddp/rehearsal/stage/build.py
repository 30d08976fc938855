"""Build stand-ins for the hub: reads a request a line, and answers each with a line, "" or what went wrong."""

from __future__ import annotations

import json
import os
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


def main() -> None:
    """Answer requests until there are no more."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what libraries print is no answer
    for line in sys.stdin:
        try:
            build(json.loads(line))
            answers.write("\n")
        except Exception as error:
            answers.write(f"{type(error).__name__}: {error}".replace("\n", " ") + "\n")
        answers.flush()
