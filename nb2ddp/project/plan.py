"""Decide, before anything is written, what a run writes."""

from __future__ import annotations

import os
import shlex
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from nb2ddp.options import Options, Settings, arguments
from nb2ddp.project import config
from nb2ddp.project.files import Job, identities
from nb2ddp.project.inputs import Input, InputError, find, is_notebook_name, named, script_for
from nb2ddp.results import Severity
from nb2ddp.script import stamp
from nb2ddp.script.launch import CONFIG_NAME, launch_files


class NoOutputError(InputError):
    """Nothing says where a script goes."""


@dataclass(frozen=True)
class Planned:
    """One notebook to convert, and the severity from which its findings fail the run."""

    job: Job
    fail_on: Severity
    rehearse: bool = False

    @property
    def processes(self) -> int:
        """Of a rehearsal: those of the job, from 2 up to what one machine trains on its CPU."""
        return min(max(self.job.options.launch.processes, 2), 4)


def plan(
    paths: Sequence[str], given: Mapping[str, Any], *, reads_config: bool = True, any_file: bool = False
) -> list[Planned]:
    """Plan a run over several notebooks.

    Args:
        paths: notebooks, links, folders and patterns.
        given: settings from the command line, by the keys of `options.SETTINGS`; stronger than any file's, but that
            `exclude` (relative to the current folder) adds to it.
        reads_config: look for settings in pyproject.toml.
        any_file: leave out files that are no notebooks.

    Raises:
        ConfigError, InputError, LaunchError, OptionsError: the run as a whole cannot be done.
    """
    planned = []
    for each in find(paths, any_file=any_file):
        found = config.find(each.path.parent) if reads_config else None
        if config.matches(given.get("exclude", []), each.path, Path()):
            continue
        if found is None or not config.matches(found.exclude, each.path, found.path.parent):
            planned.append(_planned(each, found, given))
    check_outputs([each.job for each in planned])
    return planned


def plan_one(argument: str | Path, script: Path, given: Mapping[str, Any], *, reads_config: bool = True) -> Planned:
    """Plan a run that says where the script of one notebook goes, which a file's name or a link names; see `plan`."""
    notebook = named(argument) if isinstance(argument, str) else Input(argument, argument.parent, is_named=True)
    planned = _planned(notebook, config.find(notebook.path.parent) if reads_config else None, given, script)
    check_outputs([planned.job])
    return planned


def _planned(each: Input, found: config.Config | None, given: Mapping[str, Any], script: Path | None = None) -> Planned:
    values = {**(found.values_for(each.path) if found else {}), **given}
    settings = config.settings(values)
    script = script or _script(each, settings, given)
    options, forgotten = with_last(script, settings.options, values)
    job = Job(each.path, script, options, each.link, is_named=each.is_named, forgotten=forgotten)
    return Planned(job, settings.fail_on, settings.rehearse)


def with_last(script: Path, options: Options, said: Collection[str]) -> tuple[Options, tuple[str, ...]]:
    """Compare what is asked for with what a script was converted with the last time.

    Args:
        script: the file, which may not be there.
        options: what is asked for now.
        said: the keys of what somebody set, on the command line or in pyproject.toml.

    Returns:
        The options, with the packages where the script has its own and nobody said otherwise: that only writes more
        files. And the words of all other options of the last time of which nobody said anything.
    """
    try:
        line = stamp.read(script.read_text(encoding="utf-8", errors="surrogateescape"))
        last = config.options_of(shlex.split(line.command)) if line else Options()
    except (OSError, ValueError):
        return options, ()
    if last.requirements and "requirements" not in said:
        options = replace(options, requirements=True)
    return options, tuple(arguments(last, leave_out={*said, "requirements"}))


def _script(each: Input, settings: Settings, given: Mapping[str, Any]) -> Path:
    if settings.output_dir is None:
        raise NoOutputError(
            f"Say where the scripts go: {shlex.join(['nb2ddp', str(each.path.parent), '--output-dir', 'scripts'])} "
            f"for a folder, {shlex.join(['nb2ddp', str(each.path), 'train.py'])} for one notebook"
        )
    # A root from the file belongs to an output folder from the file.
    root = settings.root if "output-dir" not in given or "root" in given else None
    return from_here(script_for(each, settings.output_dir, root))


def from_here(path: Path) -> Path:
    """A path as a person in the current folder names it, where it lies below."""
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
                "give them output folders of their own"
            )


def _config(job: Job) -> str:
    """The launch file that scripts of one folder share; the others have a script's own name."""
    try:
        return launch_files(job.options.launch, job.script.name)[CONFIG_NAME]
    except ValueError:
        return ""  # said of the notebook when its turn comes
