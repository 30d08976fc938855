"""Build one repository of the stand-in hub: `build REQUEST`, where the request is JSON: the arguments of `build`."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import Any


def build(kind: str, name: str, folder: str, **hints: Any) -> None:
    """Make a repository in a folder atomically, and write its origin to `FOLDER.origin`.

    The origin is "hub" or "cache" if the real repository was found there, else "stand-in".

    Args:
        kind: "models" or "datasets".
        name: its id.
        folder: where it is made.
        hints: see `real.build`.
    """
    from . import real

    scratch = Path(f"{folder}.part")
    shutil.rmtree(scratch, ignore_errors=True)  # of a build that was stopped
    made = scratch / "real"
    made.mkdir(parents=True)
    try:
        origin = real.build(kind, name, made, **hints)
    except Exception as error:  # a stand-in replaces anything that is not available
        if kind == "datasets":  # the stand-in for rows is made where they are read
            shutil.rmtree(scratch)
            raise LookupError("neither the hub nor its cache has it") from error
        origin = "stand-in"
        made = scratch / origin
        made.mkdir()
        _build_stand_in(name, made, sees=hints.get("sees", False))
    Path(f"{folder}.origin").write_text(origin)
    made.rename(folder)
    shutil.rmtree(scratch)


def _build_stand_in(name: str, folder: Path, *, sees: bool) -> None:
    from . import models, seeing

    if sees and models.model_of(name).family not in (*models.ENCODERS, "whisper"):
        seeing.build(name, folder)
    else:
        models.build_model(name, folder)


def main() -> int:
    """Build what the command line asks for.

    Returns:
        0, or 1 if that is not possible; the last line on standard error says why.
    """
    try:
        build(**json.loads(sys.argv[2]))
    except Exception as error:
        print(f"{type(error).__name__}: {error}".replace("\n", " "), file=sys.stderr)
        return 1
    return 0
