"""The result of a conversion: diagnostics, or an error with its place."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any


class Severity(str, Enum):
    """How much attention a finding needs, from the least."""

    NOTE = "note"  #: rewritten; nothing to do
    WARNING = "warning"  #: written, but look at it
    ERROR = "error"  #: cannot be converted


@dataclass(frozen=True)
class Location:
    """A place in a notebook. Cells count from 1, Markdown cells included; lines and columns count from 1."""

    cell: int
    line: int
    column: int

    def __str__(self) -> str:
        return f"cell {self.cell}:{self.line}:{self.column}"


@dataclass(frozen=True)
class Diagnostic:
    """One finding for a person: that of a rule, or the reason why a file could not be read, converted or written."""

    code: str
    name: str
    severity: Severity
    message: str
    location: Location | None = None  #: None for the file as a whole
    line_text: str = ""  #: the line of the notebook
    fixed: bool = False  #: the script no longer has the problem
    file_line: int | None = None  #: the line of the file, from 1; None where no file was read
    file_column: int | None = None  #: its column, from 1, if the file's lines are the notebook's, as in a script

    @property
    def order(self) -> tuple[int, int, int, str]:
        """The sort key of the findings of one notebook."""
        place = self.location or Location(0, 0, 0)
        return place.cell, place.line, place.column, self.code

    @property
    def place(self) -> str:
        """The place for a person: the line of a script, else the cell; empty for the whole file."""
        if self.location is None or self.file_column is not None:
            return ":".join(str(number) for number in (self.file_line, self.file_column) if number is not None)
        return str(self.location)


class NotebookError(Exception):
    """A notebook that cannot be converted, and where.

    Attributes:
        message: one sentence, without the place.
        location: the place in the notebook, or None if the file as a whole is at fault.
        code: the rule that refused it, or `DDP001` for a notebook that cannot be read as Python.
        diagnostics: all reasons as findings, with the codes' names; the first is this one.
    """

    def __init__(
        self,
        message: str,
        location: Location | None = None,
        code: str = "DDP001",
        name: str = "notebook-not-converted",
    ) -> None:
        super().__init__(message)
        self.message, self.location, self.code = message, location, code
        self.diagnostics: tuple[Diagnostic, ...] = (Diagnostic(code, name, Severity.ERROR, message, location),)

    @property
    def diagnostic(self) -> Diagnostic:
        """The first reason as a finding."""
        return self.diagnostics[0]

    @classmethod
    def of(cls, diagnostics: Sequence[Diagnostic]) -> NotebookError:
        """Return the error of a notebook with these reasons (at least one)."""
        first = diagnostics[0]
        error = cls(first.message, first.location, first.code, first.name)
        error.diagnostics = tuple(diagnostics)
        return error

    def __str__(self) -> str:
        return f"{self.location}: {self.message}" if self.location else self.message


@dataclass(frozen=True)
class Conversion:
    """A converted notebook, not yet written: pure text."""

    #: File name to text: the script first, then the launch files.
    files: dict[str, str]
    diagnostics: tuple[Diagnostic, ...]
    #: What the job needs: `HF_TOKEN (cells 3, 42)`.
    needs: tuple[str, ...] = ()
    #: The values that memory depends on, for each training: the fields of `nb2ddp.estimate.trainings.Training`.
    trainings: tuple[Mapping[str, Any], ...] = ()


class Status(str, Enum):
    """The outcome of a conversion."""

    CONVERTED = "converted"
    UNCHANGED = "unchanged"
    STALE = "stale"  #: a check found that something would be written
    SKIPPED = "skipped"  #: found in a folder or by a pattern, and trains nothing
    FAILED = "failed"


@dataclass(frozen=True)
class Result:
    """The result of one notebook, with the files that were (or, in a check, would be) written.

    If it is stale, the first of its diagnostics is the reason; if it failed, all of them are reasons.
    """

    notebook: Path
    script: Path
    status: Status
    diagnostics: tuple[Diagnostic, ...] = ()
    written: tuple[Path, ...] = ()
    #: Those of the written files that keep a person's edits.
    merged: tuple[Path, ...] = ()
    #: The script or a diff, if it was requested; the conflicts, if edits could not be merged.
    text: str = ""
    #: What the job needs, and what its memory depends on, as in `Conversion`.
    needs: tuple[str, ...] = ()
    trainings: tuple[Mapping[str, Any], ...] = ()

    @property
    def failure(self) -> Diagnostic | None:
        """The first reason why there is no script; None if there is one."""
        return self.diagnostics[0] if self.status is Status.FAILED else None
