"""The request of a command line, with the options that only the command has."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from nb2ddp.results import Severity
from nb2ddp.settings import setting


@dataclass(frozen=True)
class Request:
    """A command line."""

    paths: tuple[str, ...]
    #: Settings, by the keys of `options.TYPED`: only those that were given.
    given: Mapping[str, Any]
    output: Path | None = setting(None, "The script to write, or a folder.", metavar="PATH", short="-o")
    check: bool = setting(False, "Write nothing; exit with 1 if out of date.")
    diff: bool = setting(False, "Write nothing; show what would change.")
    keep: Literal["mine", "new", "nothing"] | None = setting(None, "In conflicts: your lines, new ones, or no edits.")
    form: Literal["text", "json", "github", "sarif"] = setting("text", "How to print findings.", key="format")
    verbose: bool = setting(False, "Also print notes: each rewritten line.", short="-v")
    quiet: bool = setting(False, "Print errors only.", short="-q")

    @property
    def level(self) -> Severity:
        """The lowest severity of findings to print."""
        if self.quiet:
            return Severity.ERROR
        return Severity.NOTE if self.verbose else Severity.WARNING
