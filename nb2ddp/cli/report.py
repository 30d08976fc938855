"""Report the results of a run as text, JSON or GitHub annotations, and choose the exit code."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from click import style

from nb2ddp.codes import REMEMBERED
from nb2ddp.project.plan import from_here
from nb2ddp.results import Diagnostic, Result, Severity, Status

_ORDER: Final = (Severity.NOTE, Severity.WARNING, Severity.ERROR)
#: What a status is called, where that is not its value.
_STATUSES: Final = {Status.STALE: "out of date", Status.UNCHANGED: "up to date"}
_COLORS: Final = {Severity.NOTE: "cyan", Severity.WARNING: "yellow", Severity.ERROR: "red"}


def found(result: Result, level: Severity) -> list[Diagnostic]:
    """A notebook's findings from a severity on."""
    return [each for each in result.diagnostics if _ORDER.index(each.severity) >= _ORDER.index(level)]


def status_text(status: Status) -> str:
    """What a person reads of a status."""
    return _STATUSES.get(status, status.value)


def placed(each: Diagnostic) -> str:
    """A finding's message, behind its cell where no column of the file says as much."""
    return f"{each.location}: {each.message}" if each.location and each.file_column is None else each.message


def text_lines(result: Result, level: Severity) -> Iterator[str]:
    """A notebook's findings, from a severity on, as a person reads them: styled, with the notebook's own line."""
    for each in found(result, level):
        place = f"{printable(str(result.notebook))}:" + (f"{each.place}:" if each.place else "")
        done = style(" [fixed]", dim=True) if each.fixed else ""
        color = _COLORS[each.severity]
        what = f"{style(each.code, fg=color, bold=True)} {style(each.severity.value, fg=color)}"
        yield f"{style(place, bold=True)} {what}: {printable(each.message)}{done}"
        if each.line_text.strip():
            yield style(f"    {printable(each.line_text.strip())}", dim=True)


def done_lines(result: Result, level: Severity) -> Iterator[str]:
    """What was done with the files of a notebook, but for what its findings say that are printed from a severity on."""
    if result.status is Status.SKIPPED and not found(result, level):
        why = result.diagnostics[0]
        place = f"{result.notebook}:{why.place}" if why.place else str(result.notebook)
        yield f"skipped {printable(place)}: {printable(why.message)}"
    if result.status is Status.CONVERTED and result.written:
        yield f"wrote {_names(result.written)}"
        if result.needs:
            yield f"its job needs {printable('; '.join(result.needs))}"
    if result.status in (Status.CONVERTED, Status.STALE) and level is not Severity.NOTE:
        yield from (printable(each.message) for each in result.diagnostics if each.code == REMEMBERED.code)
    if result.merged:
        yield f"kept what was edited by hand in {_names(result.merged)}"


def _names(paths: Iterable[Path]) -> str:
    return ", ".join(printable(str(path)) for path in paths)


def github_lines(result: Result, level: Severity) -> Iterator[str]:
    """A notebook's findings as workflow commands, which GitHub shows at the lines of a pull request.

    https://docs.github.com/actions/reference/workflows-and-actions/workflow-commands
    """
    for each in found(result, level):
        kind = {Severity.NOTE: "notice"}.get(each.severity, each.severity.value)
        values = {
            "file": relative(result.notebook),
            "line": str(each.file_line or 1),
            **({"col": str(each.file_column)} if each.file_column is not None else {}),
            "title": f"{each.code} {each.name}",
        }
        listed = ",".join(f"{key}={_property(value)}" for key, value in values.items())
        yield f"::{kind} {listed}::{_data(placed(each))}"


def without_notebook(each: Diagnostic, form: str) -> str:
    """A finding of no notebook, in a form of `--format`, as a line."""
    if form == "github":
        return f"::{each.severity.value} title={_property(f'{each.code} {each.name}')}::{_data(each.message)}"
    return f"{style(each.code, fg=_COLORS[each.severity], bold=True)} {each.severity.value}: {printable(each.message)}"


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")


def as_json(results: Sequence[Result]) -> str:
    """Everything as one JSON document; `docs/command.md` describes it."""
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
                "findings": [_json(each) for each in result.diagnostics],
            }
            for result in results
        ],
        "summary": Counts(results).as_dict(),
    }
    return json.dumps(document, indent=2)


def _json(each: Diagnostic) -> dict[str, Any]:
    place = each.location
    return {
        "code": each.code,
        "name": each.name,
        "severity": each.severity.value,
        "message": each.message,
        "cell": place.cell if place else None,
        "line": place.line if place else None,
        "column": place.column if place else None,
        "file_line": each.file_line,
        "file_column": each.file_column,
        "text": each.line_text,
        "fixed": each.fixed,
    }


class Counts:
    """How many notebooks ended how, and how many findings there are."""

    def __init__(self, results: Sequence[Result]) -> None:
        self.notebooks = len(results)
        self.statuses = Counter(result.status for result in results)
        severities = Counter(each.severity for result in results for each in result.diagnostics)
        self.notes, self.warnings, self.errors = (severities[each] for each in _ORDER)

    def as_dict(self) -> dict[str, int]:
        """The counts by name."""
        return {
            "notebooks": self.notebooks,
            **{status.value: self.statuses[status] for status in Status},
            "errors": self.errors,
            "warnings": self.warnings,
            "notes": self.notes,
        }

    def summary(self, *, shows_notes: bool = True) -> str:
        """The counts in one line: `3 notebooks: 2 converted, 1 failed; 0 errors, 1 warning, 20 notes (-v shows them)`.

        Args:
            shows_notes: notes are printed, so that nothing is to be said of how to see them.
        """
        ends = [f"{n} {status_text(status)}" for status in Status if (n := self.statuses[status])]
        numbers = [_count(self.errors, "error"), _count(self.warnings, "warning"), _count(self.notes, "note")]
        how = "" if shows_notes or not self.notes else " (-v shows them)" if self.notes > 1 else " (-v shows it)"
        return f"{_count(self.notebooks, 'notebook')}: {', '.join(ends) or 'none'}; {', '.join(numbers)}{how}"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def exit_code(result: Result, fail_on: Severity) -> int:
    """What one notebook asks of the exit code: 2 it failed, 1 stale or findings of the level, 0 neither."""
    if result.status is Status.FAILED:
        return 2
    return int(bool(found(result, fail_on)))


def printable(text: str) -> str:
    """Text that cannot steer a terminal: control and invisible characters as escapes."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape", "surrogatepass").decode("ascii") for c in text)


def posix(path: Path) -> str:
    """A path with `/`, and no character that UTF-8 does not know."""
    return path.as_posix().encode("utf-8", "backslashreplace").decode()


def relative(path: Path) -> str:
    """A path from the current folder where it lies below it, else as it is."""
    return posix(from_here(path))
