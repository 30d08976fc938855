"""Cache conversions by notebook, options, and nb2ddp's own code.

Entries lie in the user's cache folder, never in the repository. An entry is written atomically, and its name
is the hash of all it depends on. So processes need no lock, and an entry is never out of date.
"""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from functools import cache
from hashlib import sha256
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

from nb2ddp.project.files import Job, Store, default_folder
from nb2ddp.results import Conversion, Diagnostic, Location, Severity
from nb2ddp.script.templates import FOLDERS

#: Entries that nothing asked for in this time, in seconds, are removed.
LIFETIME: Final = 30 * 24 * 3600
#: The packages that shape the output.
_PACKAGES = ("ipython", "jinja2", "jupytext", "libcst", "nbconvert", "nbformat")


class Cache:
    """Conversions in a folder; an entry without files belongs to a notebook that cannot be converted.

    If the folder cannot be read or written, conversions are only slower.

    Args:
        folder: the folder of the entries, created when first needed. None takes `default_folder()`.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self.store = Store(folder or default_folder(), LIFETIME)

    def get(self, key: str) -> Conversion | None:
        """Return the cached conversion of a key, or None."""
        checksum, _, body = self.store.get(key).partition(b"\n")
        if _digest(body) != checksum:
            return None  # nothing, or damaged
        value: dict[str, Any] = json.loads(body)
        diagnostics = tuple(map(_diagnostic, value["diagnostics"]))
        about = tuple(value["needs"]), tuple(value["trainings"])
        return Conversion(value["files"], diagnostics, value["packages"], *about)

    def put(self, key: str, outcome: Conversion) -> None:
        """Store a conversion."""
        body = json.dumps(asdict(outcome)).encode()
        self.store.put(key, _digest(body) + b"\n" + body)


def key(content: bytes, job: Job) -> str:
    """Return the hash of all that a conversion depends on: 64 hexadecimal digits.

    Args:
        content: the notebook file's bytes.
        job: its names and options.
    """
    settings = json.dumps(
        [job.notebook.name, job.script.name, job.reference, asdict(job.options)], sort_keys=True, default=sorted
    )
    digest = sha256(f"{_tool()}\n{settings}\n".encode())
    digest.update(content)
    return digest.hexdigest()


@cache
def _tool() -> str:
    """Return a hash of nb2ddp's code and templates and of the versions of its dependencies."""
    package = Path(__file__).parent.parent
    paths = {
        *package.rglob("*.py"),
        *package.glob("*.toml"),
        *package.glob("*.json"),
        *(path for folder in FOLDERS for path in folder.glob("*.j2")),
    }
    digest = sha256()
    for path in sorted(paths):
        content = path.read_bytes()
        digest.update(f"{path.name} {len(content)}\n".encode() + content)
    versions = [f"{package} {version(package)}" for package in _PACKAGES]
    return f"{digest.hexdigest()} {sys.version_info[:2]} {versions}"


def _digest(content: bytes) -> bytes:
    return sha256(content).hexdigest().encode()


def _diagnostic(fields: dict[str, Any]) -> Diagnostic:
    location = fields["location"] and Location(**fields["location"])
    return Diagnostic(**{**fields, "location": location, "severity": Severity(fields["severity"])})
