"""Run what the command line asks for."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Sequence
from dataclasses import replace
from io import TextIOWrapper
from pathlib import Path

import click

from nb2ddp.cli import report, summary
from nb2ddp.cli.request import Request
from nb2ddp.cli.steps import next_steps
from nb2ddp.options import LaunchError, OptionsError
from nb2ddp.project.config import ConfigError
from nb2ddp.project.config import find as find_config
from nb2ddp.project.files import STDIN
from nb2ddp.project.inputs import InputError, find, is_notebook_name, named, script_beside
from nb2ddp.project.plan import Choices, NoOutputError, Planned, from_here, plan, plan_one
from nb2ddp.project.pool import Mode, run
from nb2ddp.results import Result, Status

USAGE_ERRORS = (ConfigError, InputError, LaunchError, OptionsError)
_STREAM = "-"


def execute(request: Request) -> int:
    """Convert, print and count.

    Args:
        request: what to do.

    Returns:
        The exit code.

    Raises:
        ConfigError, InputError, LaunchError, OptionsError: wrong usage; nothing has been written.
    """
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    plans, mode = planned(request)
    jobs = [each.job for each in plans]
    printer = _Printer(request, mode)
    results: list[Result] = []
    for result in run(jobs, mode):
        results.append(result)
        printer.show(result)
    printer.end(results)
    if mode is Mode.WRITE and not request.quiet and not request.starts:
        for line in next_steps(jobs, results):
            click.echo(report.printable(line), err=True)
    codes = [report.exit_code(r, p.fails_on_warnings) for r, p in zip(results, plans, strict=True)]
    return max([0, *codes])


def _mode(request: Request) -> Mode:
    if request.diff and request.form != "text":
        raise InputError("--diff prints text and cannot be combined with --format")
    if request.diff:
        return Mode.DIFF if not request.check else Mode.CHECK
    return Mode.CHECK if request.check else Mode.WRITE


def planned(request: Request) -> tuple[list[Planned], Mode]:
    """Decide what the positional arguments mean.

    Raises:
        ConfigError, InputError, LaunchError, OptionsError: wrong usage.
    """
    paths, mode, output = request.paths, _mode(request), request.output
    side = request.keep if request.keep in ("mine", "new") else ""
    choices = Choices(request.given, output, force=request.keep == "nothing", keep=side)
    if _STREAM in paths:
        stream = _plan_stream(request, choices, mode)
        return [stream], Mode.TEXT if paths[-1] == _STREAM and mode is Mode.WRITE else mode
    if not paths:
        paths = (_project(),)
    names_output = output is None and len(paths) == 2
    if names_output and _is_script(Path(paths[1])):
        return [plan_one(paths[0], Path(paths[1]), choices)], mode
    if output is not None and _is_script(output):
        if len(paths) > 1 or Path(paths[0]).is_dir():
            raise InputError(f"{output} is a file, for the script of one notebook; for several, name a folder")
        return [plan_one(paths[0], output, choices)], mode
    try:
        return plan(paths, choices), mode
    except InputError as error:
        if isinstance(error, NoOutputError) and (found := _beside(paths, choices)):
            return found, mode
        raise InputError(_output_meant(paths[1], error) if names_output else str(error)) from None


def _output_meant(last: str, error: InputError) -> str:
    """Return a hint if the last of several arguments looks like an output, not an input."""
    if Path(last).is_dir():
        return f"{last} is a folder; to write into it, type {shlex.join(['-o', last])}"
    if isinstance(error, NoOutputError) and is_notebook_name(last):
        return (
            f"An output never ends in .ipynb, so nb2ddp reads {last} as an input; for several notebooks, type -o FOLDER"
        )
    if not Path(last).exists() and str(error).startswith(last):
        return f"{last}: the name of a script must end in .py; for a folder, type -o"
    return str(error)


def _project() -> str:
    """Return the folder of the pyproject.toml that says where scripts go; the command line names no notebook."""
    found = find_config(Path())
    if found is None or "output-dir" not in found.values:
        raise InputError("Which notebook? For example: nb2ddp finetune.ipynb train.py")
    return str(from_here(found.path.parent))


def _is_script(path: Path) -> bool:
    return path.suffix == ".py" and not path.is_dir()


def _beside(paths: Sequence[str], choices: Choices) -> list[Planned]:
    """Plan a script beside its notebook, as nbconvert and jupytext do; none for a folder, a pattern or several."""
    notebooks = find(paths)
    if len(paths) > 1 or not all(notebook.is_named for notebook in notebooks):
        return []
    return [plan_one(each.link or str(each.path), script_beside(each), choices) for each in notebooks]


def _plan_stream(request: Request, choices: Choices, mode: Mode) -> Planned:
    if len(request.paths) > 2 or request.output is not None:
        raise InputError("- takes one notebook: nb2ddp - train.py, nb2ddp finetune.ipynb -, or nb2ddp - -")
    first, last = request.paths[0], request.paths[-1]
    if mode in (Mode.CHECK, Mode.DIFF) and last == _STREAM:
        raise InputError(f"--{mode.value} compares files, and - is not a file")
    if mode is Mode.WRITE and last == _STREAM and request.form != "text":
        raise InputError("with - as output, only the script goes to standard output: leave out --format")
    notebook: str | Path = STDIN if first == _STREAM else first
    if last == _STREAM:  # there is no last conversion
        script = Path("train.py" if first == _STREAM else script_beside(named(first)).name)
        return plan_one(notebook, script, replace(choices, is_fresh=True))
    if not last.endswith(".py"):
        raise InputError(f"{last}: the name of a script must end in .py")
    return plan_one(notebook, Path(last), choices)


class _Printer:
    """Print results on standard output and everything else on standard error.

    Args:
        request: how to print.
        mode: convert, check or diff.
    """

    def __init__(self, request: Request, mode: Mode) -> None:
        self.request = request
        self.mode = mode

    def show(self, result: Result) -> None:
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

    def end(self, results: Sequence[Result]) -> None:
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
