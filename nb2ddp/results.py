"""What comes out of a conversion: a result with its diagnostics, or an error that says where."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from pathlib import Path


class Severity(str, Enum):
    """How much a finding asks of the reader."""

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
    """One finding as a person reads it."""

    code: str
    name: str
    severity: Severity
    message: str
    location: Location
    line_text: str  #: the notebook's own line
    fixed: bool  #: the script no longer has the problem
    file_line: int | None = None  #: the line of the file, from 1; None where no file was read
    file_column: int | None = None  #: its column, from 1, where the file's lines are the notebook's own, as in a script


@dataclass(frozen=True)
class Failure:
    """Why there is no script: the notebook, or a file that cannot be read or written."""

    code: str
    message: str
    location: Location | None = None
    file_line: int | None = None  #: the line of the file, from 1
    line_text: str = ""  #: the notebook's own line
    file_column: int | None = None  #: its column, from 1, where the file's lines are the notebook's own, as in a script


class NotebookError(Exception):
    """A notebook that cannot be converted, and where.

    Attributes:
        message: one sentence, without the place.
        location: the place in the notebook, or None where the file as a whole is at fault.
        code: the rule that refused it, or `DDP001` for a notebook that cannot be read as Python.
    """

    def __init__(self, message: str, location: Location | None = None, code: str = "DDP001") -> None:
        super().__init__(message)
        self.message = message
        self.location = location
        self.code = code
        self.file_line: int | None = None  #: the line of the file, where one was read
        self.file_column: int | None = None  #: its column, where the file's lines are the notebook's own
        self.line_text = ""  #: the notebook's own line

    def __str__(self) -> str:
        return f"{self.location}: {self.message}" if self.location else self.message


@dataclass(frozen=True)
class Conversion:
    """A converted notebook, not yet written: pure text."""

    #: File name to text: the script first, then the launch files beside it.
    files: dict[str, str]
    diagnostics: tuple[Diagnostic, ...]


class Status(str, Enum):
    """What became of one notebook."""

    CONVERTED = "converted"
    UNCHANGED = "unchanged"
    STALE = "stale"  #: a check found that something would be written
    FAILED = "failed"


@dataclass(frozen=True)
class Result:
    """What became of one notebook, with the files that were (or, in a check, would be) written."""

    notebook: Path
    script: Path
    status: Status
    diagnostics: tuple[Diagnostic, ...] = ()
    written: tuple[Path, ...] = ()
    failure: Failure | None = None
    #: The script where it was asked for as text, else the diff where that was asked for.
    text: str = ""
