"""Write a Markdown summary for the page of a job."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from nb2ddp.cli.report import Counts, found, posix, printable, status_text
from nb2ddp.results import Result, Severity, Status

#: How many lines of a diff stand in a summary, which GitHub cuts at 1 MiB.
_DIFF_LINES: Final = 400
#: What is shown of a notebook's files.
_TITLES: Final = {
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
        counts = Counts([result])
        names = f"{_cell(posix(result.notebook))} | {_cell(posix(result.script))} | {status_text(result.status)}"
        lines.append(f"| {names} | {counts.errors} | {counts.warnings} | {counts.notes} |")
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
    return "\n".join(["## nb2ddp", "", Counts(results).summary(), "", *lines, ""])


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
