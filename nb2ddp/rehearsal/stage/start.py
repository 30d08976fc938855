"""The program of every process of a rehearsal: `python start.py build` or `python start.py SCRIPT`."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

PACKAGE = "nb2ddp_stage"


def load() -> None:
    """Import this folder as a package of its own name, so that the script sees neither nb2ddp nor this folder."""
    here = Path(__file__).resolve().parent
    spec = importlib.util.spec_from_file_location(PACKAGE, here / "__init__.py", submodule_search_locations=[str(here)])
    assert spec is not None
    assert spec.loader is not None
    package = importlib.util.module_from_spec(spec)
    sys.modules[PACKAGE] = package
    spec.loader.exec_module(package)


if __name__ == "__main__":
    load()
    sys.path.pop(0)
    program = "build" if sys.argv[1] == "build" else "play"
    sys.exit(importlib.import_module(f"{PACKAGE}.{program}").main())
