"""Turn an Unsloth fine-tuning notebook into a script that trains with Distributed Data Parallel.

The same as the command does, from Python: `convert_source` (text to text), `convert_file` (file to files) and
`convert_paths` (files and folders into an output folder). See `docs/api.md`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from nb2ddp.api import convert_file, convert_paths
    from nb2ddp.convert import convert_source
    from nb2ddp.options import Launch, LaunchError, Options, OptionsError, Slurm
    from nb2ddp.results import Conversion, Diagnostic, Location, NotebookError, Result, Severity, Status

__version__ = "0.1.0"

#: The modules that hold what is asked for here.
_HOMES = {
    "nb2ddp.api": ("convert_file", "convert_paths"),
    "nb2ddp.convert": ("convert_source",),
    "nb2ddp.options": ("Launch", "LaunchError", "Options", "OptionsError", "Slurm"),
    "nb2ddp.results": ("Conversion", "Diagnostic", "Location", "NotebookError", "Result", "Severity", "Status"),
}

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
    "Slurm",
    "Status",
    "convert_file",
    "convert_paths",
    "convert_source",
]


def __getattr__(name: str) -> object:
    """Import what is asked for, and no more: `nb2ddp --help` needs no parser."""
    for home, names in _HOMES.items():
        if name in names:
            return getattr(import_module(home), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
