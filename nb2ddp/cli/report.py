"""Report the results of a run as text, JSON or GitHub annotations, and choose the exit code."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from click import style

from nb2ddp.codes import REMEMBERED
from nb2ddp.project.files import from_here
from nb2ddp.results import Diagnostic, Result, Severity, Status

_ORDER: Final = (Severity.NOTE, Severity.WARNING, Severity.ERROR)
#: What a status is called, where that is not its value.
_STATUSES: Final = {Status.STALE: "out of date", Status.UNCHANGED: "up to date"}
_COLORS: Final = {Severity.NOTE: "cyan", Severity.WARNING: "yellow", Severity.ERROR: "red"}


def found(result: Result, level: Severity) -> list[Diagnostic]:
    """Return a notebook's findings of at least this severity; none of one that is skipped."""
    if result.status is Status.SKIPPED:
        return []
    return [finding for finding in result.diagnostics if _ORDER.index(finding.severity) >= _ORDER.index(level)]


def status_text(status: Status) -> str:
    """Return the words for a status."""
    return _STATUSES.get(status, status.value)


def placed(finding: Diagnostic) -> str:
    """Return a finding's message, after its cell if the file's column does not tell it."""
    place = f"{finding.location}: " if finding.location and finding.file_column is None else ""
    return f"{place}{finding.message}"


def text_lines(result: Result, level: Severity) -> Iterator[str]:
    """Return a notebook's findings of at least this severity, styled, each with its line of the notebook."""
    for finding in found(result, level):
        place = f"{printable(str(result.notebook))}:" + (f"{finding.place}:" if finding.place else "")
        done = style(" [fixed]", dim=True) if finding.fixed else ""
        color = _COLORS[finding.severity]
        what = f"{style(finding.code, fg=color, bold=True)} {style(finding.severity.value, fg=color)}"
        yield f"{style(place, bold=True)} {what}: {printable(finding.message)}{done}"
        if finding.line_text.strip():
            yield style(f"    {printable(finding.line_text.strip())}", dim=True)


def done_lines(result: Result, level: Severity) -> Iterator[str]:
    """Return what happened to a notebook's files, without what findings of at least this severity report."""
    if result.status is Status.SKIPPED:
        why = result.diagnostics[0]
        place = f"{result.notebook}:{why.place}" if why.place else str(result.notebook)
        yield f"skipped {printable(place)}: {printable(why.message)}"
    if result.status is Status.CONVERTED and result.written:
        yield f"wrote {_names(result.written)}"
        if result.needs:
            yield printable(needed(result))
    if result.status in (Status.CONVERTED, Status.STALE) and level is not Severity.NOTE:
        yield from (printable(finding.message) for finding in result.diagnostics if finding.code == REMEMBERED.code)
    if result.merged:
        yield f"kept your edits in {_names(result.merged)}"


def needed(result: Result) -> str:
    """Return what a script needs, as a sentence: `train.py needs rows.csv beside it (cell 3) and ...`."""
    *others, last = (need.replace(" beside the script", " beside it") for need in result.needs)
    return f"{result.script.name} needs {', '.join(others)}{' and ' if others else ''}{last}"


def _names(paths: Iterable[Path]) -> str:
    return ", ".join(printable(str(path)) for path in paths)


def github_lines(result: Result, level: Severity) -> Iterator[str]:
    """Return a notebook's findings as workflow commands, which GitHub shows in a pull request.

    https://docs.github.com/actions/reference/workflows-and-actions/workflow-commands
    """
    for finding in found(result, level):
        kind = {Severity.NOTE: "notice"}.get(finding.severity, finding.severity.value)
        values = {
            "file": relative(result.notebook),
            "line": str(finding.file_line or 1),
            **({"col": str(finding.file_column)} if finding.file_column is not None else {}),
            "title": f"{finding.code} {finding.name}",
        }
        listed = ",".join(f"{key}={_property(value)}" for key, value in values.items())
        yield f"::{kind} {listed}::{_data(placed(finding))}"


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")


def as_json(results: Sequence[Result]) -> str:
    """Return all results as one JSON document (see `docs/use.md`)."""
    document = {
        "version": 1,
        "notebooks": [
            {
                "notebook": posix(result.notebook),
                "script": posix(result.script),
                "status": result.status.value,
                "written": [posix(path) for path in result.written],
                "merged": [posix(path) for path in result.merged],
                "needs": list(result.needs),
                "findings": [_json(finding) for finding in result.diagnostics],
            }
            for result in results
        ],
        "summary": Counts(results).as_dict(),
    }
    return json.dumps(document, indent=2)


def _json(finding: Diagnostic) -> dict[str, Any]:
    place = finding.location
    return {
        "code": finding.code,
        "name": finding.name,
        "severity": finding.severity.value,
        "message": finding.message,
        "cell": place.cell if place else None,
        "line": place.line if place else None,
        "column": place.column if place else None,
        "file_line": finding.file_line,
        "file_column": finding.file_column,
        "text": finding.line_text,
        "fixed": finding.fixed,
    }


class Counts:
    """Numbers of notebooks by status, and of findings by severity."""

    def __init__(self, results: Sequence[Result]) -> None:
        self.notebooks = len(results)
        self.statuses = Counter(result.status for result in results)
        severities = Counter(finding.severity for result in results for finding in found(result, Severity.NOTE))
        self.notes, self.warnings, self.errors = (severities[severity] for severity in _ORDER)

    def as_dict(self) -> dict[str, int]:
        """Return the counts by name."""
        return {
            "notebooks": self.notebooks,
            **{status.value: self.statuses[status] for status in Status},
            "errors": self.errors,
            "warnings": self.warnings,
            "notes": self.notes,
        }

    def summary(self, *, shows_notes: bool = True) -> str:
        """Return one line: `3 notebooks: 2 converted, 1 failed; 0 errors, 1 warning, 20 notes (-v shows them)`.

        Args:
            shows_notes: notes are printed, so the line does not say how to see them.
        """
        ends = [f"{n} {status_text(status)}" for status in Status if (n := self.statuses[status])]
        numbers = [_count(self.errors, "error"), _count(self.warnings, "warning"), _count(self.notes, "note")]
        how = "" if shows_notes or not self.notes else " (-v shows them)" if self.notes > 1 else " (-v shows it)"
        return f"{_count(self.notebooks, 'notebook')}: {', '.join(ends) or 'none'}; {', '.join(numbers)}{how}"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def exit_code(result: Result, fails_on_warnings: bool) -> int:
    """Return a notebook's exit code: 2 if it failed, 1 if it is out of date or a warning counts, else 0."""
    if result.status is Status.FAILED:
        return 2
    return int(bool(found(result, Severity.WARNING if fails_on_warnings else Severity.ERROR)))


def printable(text: str) -> str:
    """Escape control and invisible characters, so that text cannot control a terminal."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape", "surrogatepass").decode("ascii") for c in text)


def posix(path: Path) -> str:
    """Return a path with `/`, in characters that UTF-8 can encode."""
    return path.as_posix().encode("utf-8", "backslashreplace").decode()


def relative(path: Path) -> str:
    """Return a path relative to the current folder if it lies below, else unchanged."""
    return posix(from_here(path))
