"""Report the results of a run as text, JSON, GitHub annotations or Markdown, and choose the exit code."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from click import style

from nb2ddp.codes import REMEMBERED
from nb2ddp.project.files import Job, from_here
from nb2ddp.results import Diagnostic, Result, Severity, Status

_ORDER = tuple(Severity)
#: The words for a status, if they are not its value.
_STATUSES = {Status.STALE: "out of date", Status.UNCHANGED: "up to date"}
_COLORS = {Severity.NOTE: "cyan", Severity.WARNING: "yellow", Severity.ERROR: "red"}


def found(result: Result, level: Severity) -> list[Diagnostic]:
    """Return a notebook's findings of at least this severity; none if it is skipped."""
    if result.status is Status.SKIPPED:
        return []
    return [finding for finding in result.diagnostics if _ORDER.index(finding.severity) >= _ORDER.index(level)]


def status_text(status: Status) -> str:
    """Return the words for a status."""
    return _STATUSES.get(status, status.value)


def placed(finding: Diagnostic) -> str:
    """Return a finding's message, after its cell if the file's column is unknown."""
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
        "summary": counts(results),
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


def counts(results: Sequence[Result]) -> dict[str, int]:
    """Return the number of notebooks, of those with each status, and of findings of each severity, by name."""
    statuses = Counter(result.status for result in results)
    severities = Counter(finding.severity for result in results for finding in found(result, Severity.NOTE))
    return {
        "notebooks": len(results),
        **{status.value: statuses[status] for status in Status},
        **{f"{severity.value}s": severities[severity] for severity in reversed(_ORDER)},
    }


def summary(results: Sequence[Result], *, shows_notes: bool = True) -> str:
    """Return one line: `3 notebooks: 2 converted, 1 failed; 0 errors, 1 warning, 20 notes (-v shows them)`.

    Args:
        results: the results of the notebooks.
        shows_notes: notes are printed, so the line does not say how to see them.
    """
    numbers = counts(results)
    ends = [f"{n} {status_text(status)}" for status in Status if (n := numbers[status.value])]
    notebooks, *totals = (_count(numbers[f"{noun}s"], noun) for noun in ("notebook", "error", "warning", "note"))
    notes = numbers["notes"]
    how = "" if shows_notes or not notes else " (-v shows them)" if notes > 1 else " (-v shows it)"
    return f"{notebooks}: {', '.join(ends) or 'none'}; {', '.join(totals)}{how}"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def exit_code(result: Result, job: Job) -> int:
    """Return a notebook's exit code: 2 if it failed, 1 if it is out of date or a warning counts, else 0."""
    if result.status is Status.FAILED:
        return 2
    return int(bool(found(result, Severity.WARNING if job.fails_on_warnings else Severity.ERROR)))


def printable(text: str) -> str:
    """Escape control and invisible characters, so that text cannot control a terminal."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape", "surrogatepass").decode("ascii") for c in text)


def posix(path: Path) -> str:
    """Return a path with `/`, in characters that UTF-8 can encode."""
    return path.as_posix().encode("utf-8", "backslashreplace").decode()


def relative(path: Path) -> str:
    """Return a path relative to the current folder if it lies below, else unchanged."""
    return posix(from_here(path))


#: The largest number of lines of a diff in a summary, which GitHub cuts at 1 MiB.
_DIFF_LINES = 400
#: Titles for the texts of notebooks' files, by status.
_TITLES = {
    Status.STALE: "Changes to {} if it is converted again",
    Status.FAILED: "New lines of {} that conflict with your edits",
}


def markdown(results: Sequence[Result]) -> str:
    """Return a Markdown summary: a line per notebook, findings, and stale files.

    Args:
        results: the results of the notebooks.
    """
    lines = ["| Notebook | Script | Result | Errors | Warnings | Rewritten |", "|---|---|---|---:|---:|---:|"]
    for result in results:
        numbers = counts([result])
        names = f"{_cell(posix(result.notebook))} | {_cell(posix(result.script))} | {status_text(result.status)}"
        lines.append(f"| {names} | {numbers['errors']} | {numbers['warnings']} | {numbers['notes']} |")
    needy = [result for result in results if result.needs]
    if needy:
        lines += ["", "| Notebook | Needs |", "|---|---|"]
        lines += [f"| {_cell(posix(each.notebook))} | {_cell('; '.join(each.needs))} |" for each in needy]
    serious = [(result, each) for result in results for each in found(result, Severity.WARNING)]
    if serious:
        lines += ["", "| Place | Code | Finding |", "|---|---|---|"]
        for result, each in serious:
            place = posix(result.notebook) + (f", {each.place}" if each.place else "")
            lines.append(f"| {_cell(place)} | {each.code} | {_cell(each.message)} |")
    for result in results:
        if result.status in _TITLES and result.text:
            title = _TITLES[result.status].format(posix(result.notebook))
            lines += ["", *_folded(title, _fenced(result.text))]
    return "\n".join(["## nb2ddp", "", summary(results), "", *lines, ""])


def _folded(title: str, content: list[str]) -> list[str]:
    """Return Markdown that a click unfolds."""
    return ["<details><summary>", "", _cell(title), "", "</summary>", "", *content, "", "</details>"]


def _fenced(diff: str) -> list[str]:
    """Return a diff as a fenced block; the fence is longer than any in the diff."""
    lines = [printable(line.expandtabs()) for line in diff.splitlines()]
    fence = "`" * max(3, 1 + max((len(run) for run in re.findall("`+", diff)), default=0))
    left_out = [f"... {len(lines) - _DIFF_LINES} more lines"] if len(lines) > _DIFF_LINES else []
    return [f"{fence}diff", *lines[:_DIFF_LINES], *left_out, fence]


def _cell(text: str) -> str:
    """Escape text for a cell of a Markdown table; `@name` mentions nobody."""
    escaped = printable(text).replace("\\", "\\\\").replace("&", "&amp;").replace("<", "&lt;")
    for character in "|`*_[]":
        escaped = escaped.replace(character, "\\" + character)
    return escaped.replace("@", "@<!-- -->")
