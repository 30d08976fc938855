"""Say what became of notebooks: for people, for GitHub, for programs; and the exit code."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from click import style

from nb2ddp.results import Diagnostic, Result, Severity, Status

_ORDER: Final = (Severity.NOTE, Severity.WARNING, Severity.ERROR)
_COLORS: Final = {Severity.NOTE: "cyan", Severity.WARNING: "yellow", Severity.ERROR: "red"}


def is_at_least(severity: Severity, level: Severity) -> bool:
    """True for a severity that a level takes in."""
    return _ORDER.index(severity) >= _ORDER.index(level)


def text_lines(result: Result, level: Severity) -> Iterator[str]:
    """A notebook's findings, from a severity on, as a person reads them: styled, with the notebook's own line."""
    for each in result.diagnostics:
        if not is_at_least(each.severity, level):
            continue
        place = f"{printable(str(result.notebook))}:" + (f"{each.place}:" if each.place else "")
        done = style(" [fixed]", dim=True) if each.fixed else ""
        color = _COLORS[each.severity]
        what = f"{style(each.code, fg=color, bold=True)} {style(each.severity.value, fg=color)}"
        yield f"{style(place, bold=True)} {what}: {printable(each.message)}{done}"
        if each.line_text.strip():
            yield style(f"    {printable(each.line_text.strip())}", dim=True)


def done_lines(result: Result, level: Severity) -> Iterator[str]:
    """What was done with the files of a notebook, but for what its findings say that are printed from a severity on."""
    is_said = any(is_at_least(each.severity, level) for each in result.diagnostics)
    if result.status is Status.SKIPPED and not is_said:
        yield f"skipped {printable(str(result.notebook))}: no Trainer trains in it"
    if result.status is Status.CONVERTED and result.written:
        yield f"wrote {_names(result.written)}"
    if result.merged:
        yield f"kept what was edited by hand in {_names(result.merged)}"


def _names(paths: Iterable[Path]) -> str:
    return ", ".join(printable(str(path)) for path in paths)


def github_lines(result: Result, level: Severity) -> Iterator[str]:
    """A notebook's findings as workflow commands, which GitHub shows at the lines of a pull request.

    https://docs.github.com/actions/reference/workflows-and-actions/workflow-commands
    """
    for each in result.diagnostics:
        if not is_at_least(each.severity, level):
            continue
        kind = {Severity.NOTE: "notice"}.get(each.severity, each.severity.value)
        place = f"{each.location}: " if each.location and each.file_column is None else ""
        values = {
            "file": relative(result.notebook),
            "line": str(each.file_line or 1),
            **({"col": str(each.file_column)} if each.file_column is not None else {}),
            "title": f"{each.code} {each.name}",
        }
        listed = ",".join(f"{key}={_property(value)}" for key, value in values.items())
        yield f"::{kind} {listed}::{_data(place + each.message)}"


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


@dataclass
class Counts:
    """How many notebooks ended how, and how many findings there are.

    Args:
        results: what to count; more can be added.
    """

    results: Iterable[Result] = ()
    statuses: Counter[Status] = field(default_factory=Counter)
    severities: Counter[Severity] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        for result in self.results:
            self.add(result)

    def add(self, result: Result) -> None:
        """Count one more."""
        self.statuses[result.status] += 1
        self.severities.update(each.severity for each in result.diagnostics)

    @property
    def notebooks(self) -> int:
        return sum(self.statuses.values())

    @property
    def notes(self) -> int:
        return self.severities[Severity.NOTE]

    @property
    def warnings(self) -> int:
        return self.severities[Severity.WARNING]

    @property
    def errors(self) -> int:
        return self.severities[Severity.ERROR]

    def as_dict(self) -> dict[str, int]:
        """The counts by name."""
        return {
            "notebooks": self.notebooks,
            **{status.value: self.statuses[status] for status in Status},
            "errors": self.errors,
            "warnings": self.warnings,
            "notes": self.notes,
        }

    def summary(self) -> str:
        """The counts in one line: `3 notebooks: 2 converted, 1 failed; 0 errors, 1 warning, 20 notes`."""
        words = {Status.STALE: "out of date", Status.UNCHANGED: "up to date"}
        ends = [f"{n} {words.get(status, status.value)}" for status in Status if (n := self.statuses[status])]
        found = [_count(self.errors, "error"), _count(self.warnings, "warning"), _count(self.notes, "note")]
        return f"{_count(self.notebooks, 'notebook')}: {', '.join(ends) or 'none'}; {', '.join(found)}"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def exit_code(result: Result, fail_on: Severity) -> int:
    """What one notebook asks of the exit code: 2 it failed, 1 stale or findings of the level, 0 neither."""
    if result.status is Status.FAILED:
        return 2
    return int(any(is_at_least(each.severity, fail_on) for each in result.diagnostics))


def printable(text: str) -> str:
    """Text that cannot steer a terminal: control and invisible characters as escapes."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape", "surrogatepass").decode("ascii") for c in text)


def posix(path: Path) -> str:
    """A path with `/`, and no character that UTF-8 does not know."""
    return path.as_posix().encode("utf-8", "backslashreplace").decode()


def relative(path: Path) -> str:
    """A path from the current folder where it lies below it, else as it is."""
    full = path.absolute()
    return posix(full.relative_to(Path.cwd()) if full.is_relative_to(Path.cwd()) else path)
