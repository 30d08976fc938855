"""Build one repository of the stand-in hub: `build REQUEST`, where the request is JSON."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import Any


def build(request: dict[str, Any]) -> None:
    """Make the repository of a request in its folder, all of it or nothing; `FOLDER.origin` says what of it is real.

    That is "hub" or "cache" where the real one was found there, else "stand-in".
    """
    from . import real

    folder = Path(request["folder"])
    scratch = Path(f"{folder}.part")
    shutil.rmtree(scratch, ignore_errors=True)  # of one that was stopped
    made = scratch / "real"
    made.mkdir(parents=True)
    try:
        origin = real.build(request["type"], request["name"], made, **_hints(request))
    except Exception as error:  # whatever it is that is not to be had: a stand-in comes in its place
        if request["type"] == "datasets":  # that of rows is made where they are read
            shutil.rmtree(scratch)
            raise LookupError("neither the hub nor its cache has it") from error
        origin = "stand-in"
        made = scratch / origin
        made.mkdir()
        _build_stand_in(request, made)
    Path(f"{folder}.origin").write_text(origin)
    made.rename(folder)
    shutil.rmtree(scratch)


def _build_stand_in(request: dict[str, Any], folder: Path) -> None:
    from . import models, seeing

    if request.get("sees") and models.model_of(request["name"]).family not in (*models.ENCODERS, "whisper"):
        seeing.build(request["name"], folder)
    else:
        models.build_model(request["name"], folder)


def _hints(request: dict[str, Any]) -> dict[str, Any]:
    return {key: request[key] for key in ("splits", "configs", "rows", "sees") if key in request}


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
