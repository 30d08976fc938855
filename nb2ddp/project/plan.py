"""Decide what a run writes, before it writes anything."""

from __future__ import annotations

import os
import shlex
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import combinations
from pathlib import Path
from typing import Any, Final

from nb2ddp.options import SETTINGS, Options, Settings, arguments
from nb2ddp.project import config
from nb2ddp.project.files import Job, identities
from nb2ddp.project.inputs import Input, InputError, check_source, find, is_notebook_name, named, script_for
from nb2ddp.project.outputs import is_of_another
from nb2ddp.results import Severity
from nb2ddp.script import stamp
from nb2ddp.script.launch import CONFIG_NAME, launch_files
from nb2ddp.settings import given as values_of
from nb2ddp.settings import settings_of

#: The keys of what shapes a conversion.
_OF_A_JOB: Final = frozenset(each.key for each in settings_of(Options))


class NoOutputError(InputError):
    """No output was named."""


@dataclass(frozen=True)
class Planned:
    """One notebook to convert, and the lowest severity of findings that fails the run."""

    job: Job
    fail_on: Severity
    rehearse: bool = False

    @property
    def processes(self) -> int:
        """The processes of a rehearsal: the job's, but at least 2 and at most what a CPU can train."""
        return min(max(self.job.options.launch.processes, 2), 4)


@dataclass(frozen=True)
class Choices:
    """What a command line chooses for its conversions.

    Attributes:
        given: settings by the keys of `options.SETTINGS`. They override those of pyproject.toml, which override those
            of the last conversion; `exclude` (relative to the current folder) adds to them.
        reads_config: take settings from pyproject.toml.
        reset: ignore the options of the last conversion.
        force, keep: as for `Job`.
    """

    given: Mapping[str, Any]
    reads_config: bool = True
    reset: bool = False
    force: bool = False
    keep: tuple[str, ...] = ()

    def config_of(self, notebook: Path) -> config.Config | None:
        """Return the settings of the pyproject.toml that applies to a notebook."""
        return config.find(notebook.parent) if self.reads_config else None

    def excludes(self, notebook: Path) -> bool:
        """True if a pattern of `exclude` matches a notebook."""
        project = self.config_of(notebook)
        is_excluded = config.matches(self.given.get("exclude", []), notebook, Path())
        return is_excluded or (project is not None and project.excludes(notebook))


def plan(paths: Sequence[str], choices: Choices, *, any_file: bool = False) -> list[Planned]:
    """Plan a run over several notebooks.

    Args:
        paths: notebooks, links, folders and patterns.
        choices: the options of the command line.
        any_file: leave out files that are no notebooks.

    Raises:
        ConfigError, InputError, LaunchError, OptionsError: the run as a whole cannot be done.
    """
    notebooks = [notebook for notebook in find(paths, any_file=any_file) if not choices.excludes(notebook.path)]
    planned = [_planned(notebook, choices) for notebook in notebooks]
    check_outputs([each.job for each in planned])
    return planned


def plan_one(argument: str | Path, script: Path, choices: Choices) -> Planned:
    """Plan the conversion of one notebook (a file or a link) to a given script; see `plan`."""
    notebook = named(argument) if isinstance(argument, str) else Input(argument, argument.parent, is_named=True)
    if not notebook.link:
        check_source(notebook.path)
    planned = _planned(notebook, choices, script)
    check_outputs([planned.job])
    return planned


def _planned(notebook: Input, choices: Choices, script: Path | None = None) -> Planned:
    project = choices.config_of(notebook.path)
    values = {**(project.values_for(notebook.path) if project else {}), **choices.given}
    settings = config.settings({key: value for key, value in values.items() if key not in _OF_A_JOB})
    script = script or _script(notebook, settings, choices.given)
    job = Job(notebook.path, script, settings.options, notebook.link, notebook.is_named, choices.force, choices.keep)
    return Planned(with_options(job, values, reset=choices.reset), settings.fail_on, settings.rehearse)


def with_options(job: Job, chosen: Mapping[str, Any], *, reset: bool = False) -> Job:
    """Return a job with the given options and those of its script's last conversion.

    Args:
        job: the notebook to convert.
        chosen: options by key, from the command line or pyproject.toml; they override the last ones.
        reset: ignore the last conversion's options.

    Raises:
        ConfigError, LaunchError, OptionsError: what is said does not fit together.
    """
    last = None if reset else _last(job)
    if last is None:
        return replace(job, options=config.settings(chosen).options)
    values = values_of(last)
    kept = _fitting({key: value for key, value in values.items() if key not in chosen}, chosen)
    options = config.settings({**kept, **chosen}).options
    notes = [f"{_typed(last, kept)}, from the last conversion; --reset ignores them"] if kept else []
    for key in [key for key in values | values_of(options) if key not in kept]:
        was, now = (_typed(each, {key}) or f"without --{key}" for each in (last, options))
        if was != now:
            notes.append(f"{now}, the last time {was}")
    return replace(job, options=options, notes=tuple(notes))


def _last(job: Job) -> Options | None:
    """Return the options of a script's last conversion; None if it is missing or another notebook's."""
    try:
        line = stamp.read(job.script.read_text(encoding="utf-8", errors="surrogateescape"))
        if line is None or is_of_another(job, line.notebook):
            return None
        return config.options_of(shlex.split(line.command))
    except (OSError, ValueError):
        return None


def _fitting(own: Mapping[str, Any], chosen: Mapping[str, Any]) -> dict[str, Any]:
    """Return the last options that fit the given ones: not those of SLURM for torchrun."""
    for size in range(len(own), 0, -1):
        for keys in combinations(own, size):
            kept = {key: own[key] for key in keys}
            with suppress(ValueError):
                config.settings({**kept, **chosen})
                return kept
    return {}


def _typed(options: Options, keys: Collection[str]) -> str:
    """Return options as a person types them."""
    return shlex.join(arguments(options, leave_out=[setting.key for setting in SETTINGS if setting.key not in keys]))


def _script(notebook: Input, settings: Settings, given: Mapping[str, Any]) -> Path:
    if settings.output_dir is None:
        raise NoOutputError(
            f"Say where the scripts go: {shlex.join(['nb2ddp', str(notebook.path.parent), '--output-dir', 'scripts'])} "
            f"for a folder, {shlex.join(['nb2ddp', str(notebook.path), 'train.py'])} for one notebook"
        )
    # A root from the file belongs to an output folder from the file.
    root = settings.root if "output-dir" not in given or "root" in given else None
    return from_here(script_for(notebook, settings.output_dir, root))


def from_here(path: Path) -> Path:
    """Return a path relative to the current folder, if it lies below."""
    full = Path(os.path.normpath(path.absolute()))
    return full.relative_to(Path.cwd()) if full.is_relative_to(Path.cwd()) else path


def check_outputs(jobs: Sequence[Job]) -> None:
    """Refuse two notebooks that would write one file in two ways, and a script that would replace a notebook.

    Raises:
        InputError: which ones.
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
        text = _config(job)
        folder = os.path.realpath(job.script.parent)
        first = launches.setdefault(folder, (text, job.notebook)) if text else (text, job.notebook)
        if text != first[0]:
            raise InputError(
                f"{first[1]} and {job.notebook} want different settings in one {job.script.parent / CONFIG_NAME}; "
                "give each its own output folder, or set the same options for both; --reset ignores the last ones"
            )


def _config(job: Job) -> str:
    """Return the launch file that all scripts of a folder share."""
    if job.options.split_model:
        return ""  # it has none
    try:
        return launch_files(job.options.launch, job.script.name)[CONFIG_NAME]
    except ValueError:
        return ""  # said of the notebook when its turn comes
