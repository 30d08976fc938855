"""Decide what a run writes, before it writes anything."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from nb2ddp.options import Options, arguments, typed
from nb2ddp.project import config
from nb2ddp.project.files import Job, from_here, identities, text_of
from nb2ddp.project.inputs import Input, InputError, check_source, find, is_notebook_name, script_for
from nb2ddp.project.outputs import is_of_another
from nb2ddp.script import stamp
from nb2ddp.script.launch import CONFIG_NAME, accelerate_config
from nb2ddp.settings import settings_of

#: The keys of the settings that shape a conversion.
_OF_A_JOB = frozenset(each.key for each in settings_of(Options))


class NoOutputError(InputError):
    """No output was named."""


@dataclass(frozen=True)
class Choices:
    """What a command line chooses for its conversions.

    Attributes:
        given: settings by the keys of `options.TYPED`; they override those of pyproject.toml.
        output: the folder of the scripts; it overrides that of pyproject.toml.
        keep: as for `Job`.
        is_fresh: ignore the script's last conversion.
    """

    given: Mapping[str, Any]
    output: Path | None = None
    keep: str = ""
    is_fresh: bool = False


def plan(paths: Sequence[str], choices: Choices) -> list[Job]:
    """Plan a run over several notebooks.

    Args:
        paths: notebooks, links, folders and patterns.
        choices: the options of the command line.

    Raises:
        ConfigError, InputError, LaunchError, OptionsError: the run as a whole is not possible.
    """
    notebooks = [notebook for notebook in find(paths) if not _is_excluded(notebook.path)]
    jobs = [_job(notebook, choices) for notebook in notebooks]
    check_outputs(jobs)
    return jobs


def plan_one(notebook: Input, script: Path, choices: Choices) -> Job:
    """Plan the conversion of one notebook (a file or a link) to a given script; see `plan`."""
    if not notebook.link:
        check_source(notebook.path)
    job = _job(notebook, choices, script)
    check_outputs([job])
    return job


def _is_excluded(notebook: Path) -> bool:
    project = config.find(notebook.parent)
    return project is not None and project.excludes(notebook)


def _job(notebook: Input, choices: Choices, script: Path | None = None) -> Job:
    project = config.find(notebook.path.parent)
    configured = project.values_for(notebook.path) if project else {}
    settings = config.settings({key: value for key, value in configured.items() if key not in _OF_A_JOB})
    if script is None:
        folder, top = choices.output, None
        if folder is None and project is not None:
            folder, top = settings.output_dir, project.path.parent
        if folder is None:
            raise NoOutputError(
                _NO_OUTPUT.format(shlex.quote(str(notebook.path.parent)), shlex.quote(str(notebook.path)))
            )
        script = from_here(script_for(notebook, folder, top))
    job = Job(notebook.path, script, Options(), notebook.link, notebook.is_named, choices.keep)
    job = replace(job, fails_on_warnings=settings.fail_on_warnings)
    return _with_options(job, configured, choices)


_NO_OUTPUT = "Say where the scripts go: nb2ddp {} -o scripts for a folder, nb2ddp {} train.py for one notebook"


def _with_options(job: Job, configured: Mapping[str, Any], choices: Choices) -> Job:
    """Return a job with its options.

    If the command line has none, those in the script's first lines stay; those of pyproject.toml override them.

    Raises:
        ConfigError, LaunchError, OptionsError: the options contradict each other.
    """
    last = None if choices.is_fresh else _last(job)
    kept = {} if choices.given else last or {}
    options = config.settings({**kept, **configured, **choices.given}).options
    was, now = (shlex.join(arguments(each)) for each in (config.settings(last or {}).options, options))
    notes = [f"{now or 'no options'}, the last time {was or 'none'}"] if last is not None and was != now else []
    notes += [f"{now}, as its first lines say"] if kept and was == now else []
    return replace(job, options=options, notes=tuple(notes))


def _last(job: Job) -> Mapping[str, Any] | None:
    """Return the options in a script's first lines, by key; None if it is missing or another notebook's."""
    try:
        line = stamp.read(text_of(job.script))
        return None if line is None or is_of_another(job, line.notebook) else typed(shlex.split(line.command))
    except (OSError, ValueError):
        return None


def check_outputs(jobs: Sequence[Job]) -> None:
    """Refuse two notebooks that would write one file in two ways, and a script that would replace a notebook.

    Raises:
        InputError: names them.
    """
    scripts: dict[object, Path] = {}
    launches: dict[str, tuple[str, Path]] = {}
    notebooks = {name for job in jobs if job.is_file for name in identities(job.notebook)}
    for job in jobs:
        names = identities(job.script)
        if is_notebook_name(job.script.name) or names & notebooks:
            raise InputError(f"{job.script}: a script cannot take the place of a notebook")
        if first_of := next((scripts[name] for name in names if name in scripts), None):
            raise InputError(f"{first_of} and {job.notebook} would both become {job.script}")
        scripts.update(dict.fromkeys(names, job.notebook))
        text = "" if job.options.split_model else accelerate_config(job.options.launch)
        folder = os.path.realpath(job.script.parent)
        first = launches.setdefault(folder, (text, job.notebook)) if text else (text, job.notebook)
        if text != first[0]:
            raise InputError(
                f"{first[1]} and {job.notebook} need different settings in one {job.script.parent / CONFIG_NAME}; give"
                " each its own output folder, or give both the same options"
            )
