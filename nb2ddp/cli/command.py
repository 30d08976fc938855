"""Run what the command line asks for."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
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
from nb2ddp.project.files import STDIN, Job, identities
from nb2ddp.project.history import git
from nb2ddp.project.inputs import InputError, find, is_notebook, is_notebook_name, named, script_beside
from nb2ddp.project.pages import Page, Report, Sarif, Summary, check_pages, files_of
from nb2ddp.project.plan import Choices, NoOutputError, Planned, from_here, plan, plan_one
from nb2ddp.project.pool import Mode, run, script_of
from nb2ddp.results import Diagnostic, Result, Status
from nb2ddp.script.launch import launch_files

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
    planned, mode = _plan(request)
    jobs = [each.job for each in planned]
    _check_sides(request.keep, jobs)
    check_pages(_pages(request), files_of(jobs))
    printer = _Printer(request, mode)
    if printer.refused(each.refusal() for each in _pages(request)):
        return 2
    results: list[Result] = []
    shows_progress = len(jobs) > 1 and not request.quiet and sys.stderr.isatty() and not os.environ.get("CI")
    with _progress(len(jobs), is_shown=shows_progress) as advance:
        for result in run(jobs, mode, processes=request.jobs, done=advance):
            results.append(result)
            if not shows_progress:
                printer.show(result)
    for result in results if shows_progress else ():
        printer.show(result)
    code = printer.end(jobs, results)
    if mode is Mode.WRITE and not request.quiet:
        for line in next_steps(jobs, results):
            click.echo(report.printable(line), err=True)
    code = max([code, *(report.exit_code(r, p.fail_on) for r, p in zip(results, planned, strict=True))])
    code = max(code, _rehearse(request, planned, results)) if mode in (Mode.WRITE, Mode.CHECK) else code
    return max(code, _hook(results, jobs)) if request.hook and mode is Mode.WRITE else code


def _check_sides(keep: Sequence[str], jobs: Sequence[Job]) -> None:
    """Refuse a `--keep` that names no side and no file of this conversion."""
    known = {name for path in files_of(jobs) for name in identities(path)}
    for each in keep:
        side, has_name, name = each.partition("=")
        if side not in ("mine", "new"):
            raise InputError(f"--keep {each}: type mine or new, or mine=FILE or new=FILE for one file")
        if has_name and not identities(Path(name)) & known:
            raise InputError(f"--keep {each}: {name} is not a file of this conversion")


def _pages(request: Request) -> list[Page]:
    """Return the pages (summary, report, SARIF) that the options ask for."""
    named = ((Summary, request.summary_file), (Report, request.report), (Sarif, request.sarif_file))
    return [kind(path, request.force) for kind, path in named if path is not None]


def _mode(request: Request) -> Mode:
    if request.rewrites and (request.check or request.diff):
        raise InputError("--rewrites compares with the notebook, --check and --diff with the files: choose one")
    chosen = {Mode.CHECK: request.check, Mode.DIFF: request.diff, Mode.REWRITES: request.rewrites}
    mode = next((mode for mode, is_chosen in chosen.items() if is_chosen), Mode.WRITE)
    if (request.diff or request.rewrites) and request.form != "text":
        raise InputError(f"--{'diff' if request.diff else mode.value} prints text and cannot be combined with --format")
    if mode in (Mode.DIFF, Mode.REWRITES) and request.report is not None:
        raise InputError(f"--{mode.value} prints text; for a page, use --check --report")
    return mode


def _plan(request: Request) -> tuple[list[Planned], Mode]:
    """Decide what the positional arguments mean."""
    paths, given, mode = request.paths, dict(request.given), _mode(request)
    choices = Choices(given, not request.isolated, request.reset, request.force, request.keep)
    if _STREAM in paths:
        planned = _plan_stream(request, choices, mode)
        return [planned], Mode.TEXT if paths[-1] == _STREAM and mode is Mode.WRITE else mode
    if not paths:
        paths = (_project(request),)
    if len(paths) == 1 and _is_script(given.get("output-dir")) and not Path(paths[0]).is_dir():
        paths = (*paths, str(given.pop("output-dir")))
    names_output = len(paths) == 2 and "output-dir" not in given
    if names_output and not request.hook and paths[1].endswith(".py") and not Path(paths[1]).is_dir():
        return [plan_one(paths[0], Path(paths[1]), choices)], mode
    if _is_script(given.get("output-dir")):
        raise InputError(f"{given['output-dir']} is a file, for the script of one notebook; for several, name a folder")
    if "output-dir" not in given and not request.hook:
        _check_several(paths)
    try:
        return plan(paths, choices, any_file=request.hook), mode
    except InputError as error:
        if isinstance(error, NoOutputError) and (beside := _beside(paths, choices, any_file=request.hook)):
            return beside, mode
        raise InputError(_output_meant(paths[1], error) if names_output else str(error)) from None


def _output_meant(last: str, error: InputError) -> str:
    """Return a hint if the last of several arguments looks like an output, not an input."""
    if Path(last).is_dir():
        return f"{last} is a folder; to write into it, type {shlex.join(['--output-dir', last])}"
    if isinstance(error, NoOutputError) and is_notebook_name(last):
        return (
            f"An output never ends in .ipynb, so nb2ddp reads {last} as an input; "
            "for several notebooks, type --output-dir FOLDER"
        )
    if not Path(last).exists() and str(error).startswith(last):
        return f"{last}: the name of a script must end in .py; for a folder, use --output-dir"
    return str(error)


def _check_several(paths: Sequence[str]) -> None:
    """Refuse names of scripts among several arguments, and say how each notebook gets its script."""
    scripts = [
        path for path in paths if path.endswith(".py") and not Path(path).is_dir() and not is_notebook(Path(path))
    ]
    notebooks = [path for path in paths if path not in scripts]
    if not notebooks or not scripts or len(paths) < 3:
        return
    if len(notebooks) == 1:
        meant = shlex.join(["nb2ddp", notebooks[0], scripts[0]])
        raise InputError(f"One notebook becomes one script, not {' and '.join(scripts)}. Type: {meant}")
    folder = shlex.join(["nb2ddp", *notebooks, "--output-dir", "scripts"])
    raise InputError(f"{scripts[0]} cannot be the script of several notebooks. Type: {folder}")


def _project(request: Request) -> str:
    """Return the folder of notebooks that pyproject.toml names; the command line names none."""
    found = None if request.isolated else find_config(Path())
    if found is None or not {"output-dir", "root"} & (set(found.values) | set(request.given)):
        raise InputError("Which notebook? For example: nb2ddp finetune.ipynb train.py")
    return str(from_here(found.path.parent / found.values.get("root", "")))


def _is_script(output: Path | None) -> bool:
    return output is not None and output.suffix == ".py" and not output.is_dir()


def _beside(paths: Sequence[str], choices: Choices, *, any_file: bool) -> list[Planned]:
    """Plan scripts beside their notebooks, as nbconvert and jupytext do; none for a folder or a pattern."""
    notebooks = find(paths, any_file=any_file)
    if not (any_file or len(paths) == 1) or not all(notebook.is_named for notebook in notebooks):
        return []
    return [plan_one(each.link or str(each.path), script_beside(each), choices) for each in notebooks]


def _plan_stream(request: Request, choices: Choices, mode: Mode) -> Planned:
    if len(request.paths) > 2 or "output-dir" in request.given:
        raise InputError("- takes one notebook: nb2ddp - train.py, nb2ddp finetune.ipynb -, or nb2ddp - -")
    first, last = request.paths[0], request.paths[-1]
    if mode in (Mode.CHECK, Mode.DIFF) and last == _STREAM:
        raise InputError(f"--{mode.value} compares files, and - is not a file")
    if mode is Mode.WRITE and last == _STREAM and request.form != "text":
        raise InputError("with - as output, only the script goes to standard output: leave out --format")
    notebook: str | Path = STDIN if first == _STREAM else first
    if last == _STREAM:  # there is no last conversion
        script = Path("train.py" if first == _STREAM else script_beside(named(first)).name)
        return plan_one(notebook, script, replace(choices, reset=True))
    if not last.endswith(".py"):
        raise InputError(f"{last}: the name of a script must end in .py")
    return plan_one(notebook, Path(last), choices)


class _Printer:
    """Print results on standard output and everything else on standard error.

    Args:
        request: how to print.
        mode: convert, check, diff or rewrites.
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
            takes_stdout = self.request.diff or self.mode in (Mode.REWRITES, Mode.TEXT)
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

    def end(self, jobs: Sequence[Job], results: Sequence[Result]) -> int:
        """Print the summary and write the pages; return the exit code, 2 if a page could not be written."""
        if self.request.form == "json":
            click.echo(report.as_json(results))
        elif self.request.form == "sarif":
            from nb2ddp.cli.sarif import as_sarif

            click.echo(as_sarif(results))
        codes = [self._write(each, jobs, results) for each in _pages(self.request)]
        if not self.request.quiet:
            hidden = self.request.form in ("text", "github") and not self.request.verbose
            click.echo(report.Counts(results).summary(shows_notes=not hidden), err=True)
        return max(codes, default=0)

    def refused(self, refusals: Iterable[Diagnostic | None]) -> bool:
        """Print why pages cannot be written; return True if there is a reason."""
        found = [each for each in refusals if each is not None]
        for each in found:
            click.echo(report.without_notebook(each, self.request.form), err=self.request.form in ("json", "sarif"))
        return bool(found)

    def _write(self, wanted: Page, jobs: Sequence[Job], results: Sequence[Result]) -> int:
        """Write a page and print its name; return the exit code."""
        if isinstance(wanted, Report):
            from nb2ddp.cli.page import page

            text = page(jobs, results, script_of)
        elif isinstance(wanted, Sarif):
            from nb2ddp.cli.sarif import as_sarif

            text = f"{as_sarif(results)}\n"
        else:
            text = summary.markdown(results)
        if self.refused([wanted.write(text)]):
            return 2
        if not self.request.quiet:
            click.echo(f"wrote {report.printable(str(wanted.path))}", err=True)
        return 0


def _diff_line(line: str) -> str:
    """Return a line of a diff in git's colours, with control characters escaped."""
    text = report.printable(line.expandtabs())
    if line.startswith(("--- ", "+++ ")):
        return click.style(text, bold=True)
    color = {"+": "green", "-": "red", "@": "cyan"}.get(line[:1])
    return click.style(text, fg=color) if color else text


def _rehearse(request: Request, planned: Sequence[Planned], results: Sequence[Result]) -> int:
    """Rehearse the up-to-date scripts if `--rehearse` asks for it; return the highest exit code."""
    from nb2ddp.cli import rehearse

    codes = [
        rehearse.run(each.job.script, quiet=request.quiet, err=request.form != "text", processes=each.processes)
        for each, result in zip(planned, results, strict=True)
        if each.rehearse and result.status in (Status.CONVERTED, Status.UNCHANGED)
    ]
    return max(codes, default=0)


def _hook(results: Sequence[Result], jobs: Sequence[Job]) -> int:
    """Print the files that the commit still lacks; return 1 if there are any."""
    written = [path for result in results for path in result.written]
    outputs = []
    for job, result in zip(jobs, results, strict=True):
        if result.status is not Status.FAILED:
            beside = launch_files(job.options.launch, job.script.name)
            outputs += [job.script, *(job.script.parent / name for name in beside)]
    lacking = list(dict.fromkeys([*written, *_untracked(outputs)]))
    if not lacking:
        return 0
    click.echo("The commit lacks converted files. Add them and commit again:")
    click.echo(f"  {shlex.join(['git', 'add', '--', *map(str, lacking)])}")
    return 1


def _untracked(paths: Sequence[Path]) -> list[Path]:
    """Return the files that git neither tracks nor ignores; none outside a repository."""
    arguments = ["ls-files", "--others", "--exclude-standard", "-z", "--", *map(str, paths)]
    listed = git(Path(), *arguments) if paths else None
    return [Path(os.fsdecode(name)) for name in (listed or b"").split(b"\0") if name]


@contextmanager
def _progress(length: int, *, is_shown: bool) -> Iterator[Callable[[], None]]:
    """Show a progress bar on standard error if wanted; call what it yields once per notebook."""
    if not is_shown:
        yield lambda: None
        return
    with click.progressbar(length=length, label="Converting", file=sys.stderr, show_pos=True) as bar:
        yield lambda: bar.update(1)
