"""Turn an Unsloth fine-tuning notebook into a script that trains with Distributed Data Parallel.

The functions for Python do the same as the command: `convert_source` (text to text), `convert_file` (file to files) and
`convert_paths` (files and folders into an output folder). See `docs/api.md`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from nb2ddp.api import convert_file, convert_paths
    from nb2ddp.convert import convert_source
    from nb2ddp.options import Launch, LaunchError, Options, OptionsError
    from nb2ddp.results import Conversion, Diagnostic, Location, NotebookError, Result, Severity, Status

__version__ = "0.1.0"

#: The modules that define these names, from the fastest to import.
_HOMES = ("results", "options", "convert", "api")

__all__ = [
    "Conversion",
    "Diagnostic",
    "Launch",
    "LaunchError",
    "Location",
    "NotebookError",
    "Options",
    "OptionsError",
    "Result",
    "Severity",
    "Status",
    "convert_file",
    "convert_paths",
    "convert_source",
]


def __getattr__(name: str) -> object:
    """Import only the module that defines a name: `nb2ddp --help` needs no parser."""
    for home in _HOMES if name in __all__ else ():
        if hasattr(module := import_module(f"nb2ddp.{home}"), name):
            return getattr(module, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
