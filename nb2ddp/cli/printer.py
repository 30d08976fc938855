"""Print the results of notebooks."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Sequence
from io import TextIOWrapper
from pathlib import Path

import click

from nb2ddp.cli import report
from nb2ddp.cli.request import Request
from nb2ddp.project.files import Mode
from nb2ddp.results import Result, Status


def show(request: Request, mode: Mode, results: Iterable[Result]) -> list[Result]:
    """Print results on standard output as they come, and everything else on standard error; return them.

    Args:
        request: how to print.
        mode: what was done with the conversions.
        results: the results of the notebooks.
    """
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    done = list[Result]()
    for result in results:
        done.append(result)
        _show(request, mode, result)
    _end(request, done)
    return done


def _show(request: Request, mode: Mode, result: Result) -> None:
    """Print one notebook's result."""
    if request.form == "github":
        for line in report.github_lines(result, request.level):
            click.echo(line)
    elif request.form == "text":
        takes_stdout = request.diff or mode is Mode.TEXT
        for line in report.text_lines(result, request.level):
            click.echo(line, err=takes_stdout)
        if mode is Mode.TEXT and result.status is not Status.FAILED:
            sys.stdout.flush()
            sys.stdout.buffer.write(result.text.encode())
            return
        is_shown = mode is not Mode.CHECK or request.diff or result.status is Status.FAILED
        for line in result.text.splitlines() if is_shown else ():
            click.echo(_diff_line(line))
        if not request.quiet:
            for line in report.done_lines(result, request.level):
                click.echo(line, err=True)


def _end(request: Request, results: Sequence[Result]) -> None:
    """Print the output for all notebooks together; on GitHub, also write the summary to the job's page."""
    if request.form == "json":
        click.echo(report.as_json(results))
    elif request.form == "sarif":
        from nb2ddp.cli.sarif import as_sarif

        click.echo(as_sarif(results))
    elif request.form == "github" and (page := os.environ.get("GITHUB_STEP_SUMMARY")):
        with Path(page).open("a", encoding="utf-8", errors="backslashreplace") as file:
            file.write(report.markdown(results))
    if not request.quiet:
        hidden = request.form in ("text", "github") and not request.verbose
        click.echo(report.summary(results, shows_notes=not hidden), err=True)


def _diff_line(line: str) -> str:
    """Return a line of a diff in git's colours, with control characters escaped."""
    text = report.printable(line.expandtabs())
    if line.startswith(("--- ", "+++ ")):
        return click.style(text, bold=True)
    color = {"+": "green", "-": "red", "@": "cyan"}.get(line[:1])
    return click.style(text, fg=color) if color else text
