"""Read tables in TOML."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

__all__ = ["tables", "tomllib"]


@cache
def tables(module: str) -> Mapping[str, Any]:
    """Return the tables in the file next to a module of this package that has its name and ends in `.toml`.

    Args:
        module: the module's `__file__`.
    """
    return tomllib.loads(Path(module).with_suffix(".toml").read_text(encoding="utf-8"))
