"""Read the tables beside a module of this folder; the environments in which it runs have no nb2ddp."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


def tables(module: str) -> dict[str, Any]:
    """The tables in the file of a module's name that ends in `.toml`.

    Args:
        module: the module's `__file__`.
    """
    return tomllib.loads(Path(module).with_suffix(".toml").read_text(encoding="utf-8"))
