"""Read the tables next to a module of this folder, which runs in environments without nb2ddp."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


def tables(module: str) -> dict[str, Any]:
    """Return the tables in the TOML file with the name of a module.

    Args:
        module: the module's `__file__`.
    """
    return tomllib.loads(Path(module).with_suffix(".toml").read_text(encoding="utf-8"))
