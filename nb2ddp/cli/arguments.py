"""Decide what the positional arguments of a command line mean."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from nb2ddp.cli.request import Request
from nb2ddp.options import LaunchError, OptionsError
from nb2ddp.project.config import ConfigError
from nb2ddp.project.config import find as find_config
from nb2ddp.project.files import STDIN, Job, Mode, from_here
from nb2ddp.project.inputs import InputError, find, is_notebook_name, named, script_beside
from nb2ddp.project.plan import Choices, NoOutputError, plan, plan_one

USAGE_ERRORS = (ConfigError, InputError, LaunchError, OptionsError)
_STREAM = "-"


def _mode(request: Request) -> Mode:
    if request.diff and request.form != "text":
        raise InputError("--diff prints text and cannot be combined with --format")
    if request.check:
        return Mode.CHECK
    return Mode.DIFF if request.diff else Mode.WRITE


def planned(request: Request) -> tuple[list[Job], Mode]:
    """Decide what the positional arguments mean.

    Raises:
        ConfigError, InputError, LaunchError, OptionsError: wrong usage.
    """
    paths, mode, output = request.paths, _mode(request), request.output
    choices = Choices(request.given, output, request.keep or "")
    if _STREAM in paths:
        stream = _plan_stream(request, choices, mode)
        return [stream], Mode.TEXT if paths[-1] == _STREAM and mode is Mode.WRITE else mode
    if not paths:
        paths = (_project(),)
    names_output = output is None and len(paths) == 2
    if names_output and _is_script(Path(paths[1])):
        return [plan_one(named(paths[0]), Path(paths[1]), choices)], mode
    if output is not None and _is_script(output):
        if len(paths) > 1 or Path(paths[0]).is_dir():
            raise InputError(f"{output} is a file, for the script of one notebook; for several, name a folder")
        return [plan_one(named(paths[0]), output, choices)], mode
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
    """Return the folder of the pyproject.toml that sets the output folder, for a command line without a notebook."""
    found = find_config(Path())
    if found is None or "output-dir" not in found.values:
        raise InputError("Which notebook? For example: nb2ddp finetune.ipynb train.py")
    return str(from_here(found.path.parent))


def _is_script(path: Path) -> bool:
    return path.suffix == ".py" and not path.is_dir()


def _beside(paths: Sequence[str], choices: Choices) -> list[Job]:
    """Plan a script next to its notebook, as nbconvert and jupytext do; none for a folder, a pattern or several."""
    notebooks = find(paths)
    if len(paths) > 1 or not all(notebook.is_named for notebook in notebooks):
        return []
    return [plan_one(each, script_beside(each), choices) for each in notebooks]


def _plan_stream(request: Request, choices: Choices, mode: Mode) -> Job:
    if len(request.paths) > 2 or request.output is not None:
        raise InputError("- takes one notebook: nb2ddp - train.py, nb2ddp finetune.ipynb -, or nb2ddp - -")
    first, last = request.paths[0], request.paths[-1]
    if mode in (Mode.CHECK, Mode.DIFF) and last == _STREAM:
        raise InputError(f"--{mode.value} compares files, and - is not a file")
    if mode is Mode.WRITE and last == _STREAM and request.form != "text":
        raise InputError("with - as output, only the script goes to standard output: leave out --format")
    notebook = named(str(STDIN) if first == _STREAM else first)
    if last == _STREAM:  # there is no last conversion
        script = Path("train.py" if first == _STREAM else script_beside(notebook).name)
        return plan_one(notebook, script, replace(choices, is_fresh=True))
    if not last.endswith(".py"):
        raise InputError(f"{last}: the name of a script must end in .py")
    return plan_one(notebook, Path(last), choices)
