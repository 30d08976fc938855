"""`nb2ddp rehearse`: train a script in several processes on this machine."""

from __future__ import annotations

import os
import shutil
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from nb2ddp.results import NotebookError
from nb2ddp.script.modules import hidden, other_name

if TYPE_CHECKING:
    from nb2ddp.rehearsal.environments import Environment, Wanted
    from nb2ddp.rehearsal.verdict import Verdict

_EXAMPLES = """\
\b
Examples:
  nb2ddp rehearse train.py               a converted script, or any with a Trainer
  nb2ddp rehearse notebook.ipynb --gpus 4  convert it first
  nb2ddp rehearse notebook.ipynb --versions notebook  in the versions that the notebook asks for

\b
Exit code: 0 ready; 1 a fault; 2 it could not be rehearsed, or wrong usage; 3 it trains as one process does,
but some cells that training does not need could not be rehearsed.
It runs the script: docs/rehearsal.md says how your machine is protected.
"""


@click.command(epilog=_EXAMPLES)
@click.argument("source", metavar="SCRIPT")
@click.option(
    "--versions",
    type=click.Choice(["notebook", "newest", "here"]),
    help="Train with the versions that the notebook asks for, the newest that Unsloth allows, or those that are "
    "installed here. uv makes the environment, which is kept. Default: here if the installed versions suit the script, "
    "else notebook.",
)
@click.option(
    "--gpus", "processes", type=click.IntRange(2, 64), default=2, help="Processes of the second run (default 2)."
)
@click.option("--data", type=click.Path(path_type=Path, exists=True, dir_okay=False), help="A file of real rows.")
@click.option("--offline", is_flag=True, help="Do not ask the Hub; use stand-ins and the cache.")
@click.option("--trust", is_flag=True, help="Let the script start programs, reach the network and write anywhere.")
@click.option("--format", "form", type=click.Choice(["text", "json"]), default="text", help="How to print the verdict.")
@click.option("--keep", type=click.Path(path_type=Path, exists=False), hidden=True)
@click.pass_context
def rehearse(ctx: click.Context, /, source: str, **options: Any) -> None:
    """Train SCRIPT with small stand-ins on the CPU, as one process and as several, and compare.

    SCRIPT is a Python file, or a notebook or a link to one, which is converted first. Small random models replace the
    real ones, with their configuration and tokenizer if the Hub has them. The first rows of each data set, or made-up
    ones, replace it. No weights are downloaded, nothing is uploaded, and no login happens.
    """
    ctx.exit(run(source, **options))


def run(source: str, *, form: str = "text", versions: str | None = None, **options: Any) -> int:
    """Rehearse one script or notebook and print the verdict.

    Args:
        source: a Python file, a notebook, or a link to one.
        form: "text" or "json".
        versions: "notebook", "newest" or "here"; None means "here" if the libraries for the script are installed.
        options: fields of `nb2ddp.rehearsal.rehearse.Options`.

    Returns:
        The exit code.
    """
    from nb2ddp.rehearsal import report as reports

    if (named := options.get("keep")) is not None:
        options["keep"] = keep = Path(os.path.normpath(named))
        if keep.is_symlink() or keep.exists():
            raise click.UsageError(f"--keep {keep}: it exists: name a new folder")
    progress = _progress(sys.stderr.isatty())
    try:
        script, text, wanted = _script(source)
        fits = _fits(script, text, options.get("processes", 2)) if form == "text" else ""
        verdict = _rehearsed(script, text, wanted, versions, options, progress)
    except (Exception, KeyboardInterrupt) as error:
        progress("")
        return _failed(source, error)
    progress("")
    click.echo(reports.as_json(verdict) if form == "json" else "\n".join(reports.text_lines(verdict)))
    if fits:
        click.echo(f"Estimate: {fits}.")
    return verdict.code


def _failed(source: str, error: BaseException) -> int:
    """Print why there is no verdict, and return the exit code."""
    from nb2ddp.rehearsal.plan import PlanError
    from nb2ddp.rehearsal.uv import UvError

    if isinstance(error, KeyboardInterrupt):
        click.echo("Interrupted. Nothing is left behind.", err=True)
        return 130
    if isinstance(error, (PlanError, UvError)):
        line = getattr(error, "line", None)
        click.echo(f"{source}{f':{line}' if line else ''}: {error}", err=True)
    else:  # the last resort: a bug of nb2ddp is not an error of the script
        message = f"{type(error).__name__}: {error}".splitlines()[0]
        click.echo(f"{source}: an error of nb2ddp rehearse, not of the script: {message}; please report it", err=True)
    return 2


def _fits(script: Path, text: str, processes: int) -> str:
    """Return which GPUs fit a script's training and how many its steps keep busy; empty if unknown."""
    from nb2ddp.cli.estimate import in_one_line, trainings_in

    with suppress(NotebookError):
        return in_one_line(trainings_in(text, script), script.parent, processes)
    return ""


def _rehearsed(
    script: Path,
    text: str,
    wanted: Wanted,
    versions: str | None,
    options: Mapping[str, Any],
    tell: Callable[[str], None],
) -> Verdict:
    """Return the verdict on a script.

    If no versions are chosen, and those here lack what the script uses, it is the verdict in the notebook's versions.

    Raises:
        PlanError: the script cannot be rehearsed.
        UvError: an environment cannot be made.
    """
    from nb2ddp.rehearsal import uv
    from nb2ddp.rehearsal.plan import PlanError, planned
    from nb2ddp.rehearsal.rehearse import Options, rehearse

    def judged(versions: str | None, why: str = "") -> Verdict:
        plan = planned(script, text, partial(_environment, versions, why, wanted, tell))
        if why and options.get("keep"):  # the folder of the first verdict
            shutil.rmtree(options["keep"])
        return rehearse(replace(plan, other_versions=tuple(wanted.lacks(plan.environment))), Options(**options), tell)

    verdict = judged(versions)
    if versions is None and verdict.is_of_versions and uv.found():
        with suppress(uv.UvError, PlanError):  # the first verdict stands then
            verdict = judged("notebook", ", because those here lack names or arguments that the script uses")
    return verdict


def _environment(
    versions: str | None, why: str, wanted: Wanted, tell: Callable[[str], None], libraries: Sequence[str]
) -> Environment:
    """Return the environment for a script that trains with these libraries.

    Args:
        versions: as for `run`.
        why: the reason for the notebook's versions, for the printed line; empty if the other arguments give it.
        wanted: the packages that the script asks for.
        tell: shows the current step.
        libraries: the libraries that it trains with.

    Raises:
        UvError: an environment cannot be made.
    """
    from nb2ddp.rehearsal import environments, uv

    present = environments.here()
    lacking = [name for name in libraries if not present.has(name)]
    if versions == "here" or (versions is None and not (lacking and uv.found())):
        return present
    if versions == "newest":
        return environments.made(wanted.with_versions("newest"), libraries, "the newest versions", tell)
    if versions is None:
        why = f", as {', '.join(lacking)} is not installed here"
    made = environments.made(wanted, libraries, f"the notebook's versions{why}", tell)
    return replace(made, is_notebooks=True)


def _script(source: str) -> tuple[Path, str, Wanted]:
    """Return the path of the script to rehearse, in the folder of the files that it reads, its text, and its packages.

    The script is the conversion of a notebook, including one of marimo, or any other .py file as it is, even one that
    was exported from a notebook. Such a file's requirements file is next to it.

    Raises:
        PlanError: the source cannot be read, fetched or converted.
    """
    from nb2ddp.convert import convert_source
    from nb2ddp.notebook.ipynb import read_metadata
    from nb2ddp.notebook.marimo import is_marimo
    from nb2ddp.options import Options
    from nb2ddp.project.files import decode, read
    from nb2ddp.project.inputs import named, script_name
    from nb2ddp.rehearsal.environments import Wanted
    from nb2ddp.rehearsal.plan import PlanError

    notebook = named(source)
    path = notebook.path
    script = path.resolve().parent / script_name(notebook)
    try:
        text = decode(read(path, notebook.link))
        is_script = path.suffix.lower() == ".py" and not is_marimo(text)
        if is_script and (what := hidden(path.stem)):
            raise PlanError(f"Python would import it in place of {what}: call it {other_name(path.stem)}")
        if is_script:
            beside = path.resolve().parent.glob(f"{path.stem}.requirements.txt")
            wanted = Wanted.of({file.name: file.read_text(encoding="utf-8") for file in sorted(beside)})
            wanted = replace(wanted, lines=(*read_metadata(text).dependencies, *wanted.lines))
        else:
            done = convert_source(text, path.stem, script.name, Options(), path.name)
            text, wanted = done.files[script.name], Wanted.of(done.files)
    except OSError as error:
        raise PlanError(f"it cannot be read: {error.strerror}") from None
    except NotebookError as error:
        raise PlanError(str(error).removeprefix(f"{source}: ")) from None
    return script, text, wanted


def _progress(is_terminal: bool) -> Callable[[str], None]:
    """Return a function that shows the current step, as `run: what it does`; an empty text clears the line.

    On a terminal it is one changing line; elsewhere a line for each run, and one every ten seconds.
    """
    last, due = "", 0.0

    def tell(text: str) -> None:
        nonlocal last, due
        if text == last:
            return
        if is_terminal:
            last = text
            click.echo(f"\r\x1b[2K{text[:100]}", nl=False, err=True)
        elif text and (text.split(":")[0] != last.split(":")[0] or time.monotonic() > due):
            last, due = text, time.monotonic() + 10
            click.echo(text, err=True)

    return tell
