"""Print what became of notebooks."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Sequence
from io import TextIOWrapper
from pathlib import Path

import click

from nb2ddp.cli import report, summary
from nb2ddp.cli.request import Request
from nb2ddp.project.files import Mode
from nb2ddp.results import Result, Status


class Printer:
    """Print results on standard output and everything else on standard error.

    Args:
        request: how to print.
        mode: convert, check or diff.
    """

    def __init__(self, request: Request, mode: Mode) -> None:
        self.request = request
        self.mode = mode
        for stream in (sys.stdout, sys.stderr):
            if isinstance(stream, TextIOWrapper):
                stream.reconfigure(errors="backslashreplace")

    def show(self, results: Iterable[Result]) -> list[Result]:
        """Print the results of notebooks as they come, then what is said of all together; return them."""
        done = list[Result]()
        for result in results:
            done.append(result)
            self._show(result)
        self._end(done)
        return done

    def _show(self, result: Result) -> None:
        """Print one notebook's result."""
        if self.request.form == "github":
            for line in report.github_lines(result, self.request.level):
                click.echo(line)
        elif self.request.form == "text":
            takes_stdout = self.request.diff or self.mode is Mode.TEXT
            for line in report.text_lines(result, self.request.level):
                click.echo(line, err=takes_stdout)
            if self.mode is Mode.TEXT and result.status is not Status.FAILED:
                sys.stdout.flush()
                sys.stdout.buffer.write(result.text.encode())
                return
            is_shown = self.mode is not Mode.CHECK or self.request.diff or result.status is Status.FAILED
            for line in result.text.splitlines() if is_shown else ():
                click.echo(_diff_line(line))
            if not self.request.quiet:
                for line in report.done_lines(result, self.request.level):
                    click.echo(line, err=True)

    def _end(self, results: Sequence[Result]) -> None:
        """Print what is said of all notebooks together; on GitHub the summary goes to the job's page too."""
        if self.request.form == "json":
            click.echo(report.as_json(results))
        elif self.request.form == "sarif":
            from nb2ddp.cli.sarif import as_sarif

            click.echo(as_sarif(results))
        elif self.request.form == "github" and (page := os.environ.get("GITHUB_STEP_SUMMARY")):
            with Path(page).open("a", encoding="utf-8", errors="backslashreplace") as file:
                file.write(summary.markdown(results))
        if not self.request.quiet:
            hidden = self.request.form in ("text", "github") and not self.request.verbose
            click.echo(report.Counts(results).summary(shows_notes=not hidden), err=True)


def _diff_line(line: str) -> str:
    """Return a line of a diff in git's colours, with control characters escaped."""
    text = report.printable(line.expandtabs())
    if line.startswith(("--- ", "+++ ")):
        return click.style(text, bold=True)
    color = {"+": "green", "-": "red", "@": "cyan"}.get(line[:1])
    return click.style(text, fg=color) if color else text
