"""Find which packages an environment has: `python about.py NAME ...` prints their versions as JSON."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
import sys
from collections.abc import Iterable


def versions(names: Iterable[str]) -> dict[str, str]:
    """Return the versions of the packages that can be imported; "" if a version is unknown."""
    return {name: _version(name) for name in names if importlib.util.find_spec(name) is not None}


def _version(name: str) -> str:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return ""


if __name__ == "__main__":
    print(json.dumps(versions(sys.argv[1:])))
