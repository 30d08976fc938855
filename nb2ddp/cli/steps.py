"""Print the next commands after a conversion: install the packages, start the script."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path

from nb2ddp.cli.estimate import in_one_line
from nb2ddp.estimate.trainings import Training
from nb2ddp.project.files import Job, from_here
from nb2ddp.results import Result, Status
from nb2ddp.rules import phases, trainer
from nb2ddp.script.launch import ADDRESS, LAUNCHING, launch_lines, path_word, single_command
from nb2ddp.script.packages import file_name, install_command


def next_steps(jobs: Sequence[Job], results: Sequence[Result]) -> Iterator[str]:
    """Return the commands to type next in the current folder.

    Args:
        jobs: the converted notebooks.
        results: their results, in the same order.
    """
    done = [(job, result) for job, result in zip(jobs, results, strict=True) if result.status is Status.CONVERTED]
    if len(done) == 1:
        yield from _of_one(*done[0])
    elif done:
        (_, command), *_ = _started(*done[0])
        yield f"Start one, for example: {' && '.join([*_installs(done[0][0]), command])}"


def _of_one(job: Job, result: Result) -> Iterator[str]:
    launch = job.options.launch
    for line in _installs(job):
        yield f"Install its packages with: {line}"
    found = [Training(**fields) for fields in result.trainings]
    fits = "" if job.options.split_model else in_one_line(found, job.notebook.parent, launch.processes)
    if fits:
        yield f"Estimate: {fits} (nb2ddp estimate {_word(job.notebook)})."
    if _serves(result):
        yield "Start its vLLM server first: the script's first lines have the command."
    (where, command), *others = _started(job, result)
    does = "Open it" if launch.launcher == "notebook" else "Start it"
    yield f"{does} on {where} with: {command}"
    for where, command in others:
        yield f"{'And' if where.startswith('machine') else 'Or'} on {where} with: {command}"
    if any(ADDRESS in command.replace("=", " ").split() for _, command in others):
        yield f"{ADDRESS} is the name of machine 0."


def _serves(result: Result) -> bool:
    return any(each.code == trainer.completions_from_a_server.code for each in result.diagnostics)


def _leaves(result: Result) -> bool:
    return any(each.message.endswith(phases.FEWER) for each in result.diagnostics)


def _started(job: Job, result: Result) -> list[tuple[str, str]]:
    """Return the command that starts a script from the current folder; the job runs in the script's folder."""
    if job.options.launch.launcher == "notebook":
        notebook = job.script.with_name(f"{job.script.stem}{LAUNCHING}")
        return [("Kaggle, Colab, or a machine with several GPUs", f"jupyter lab {_word(notebook)}")]
    parent = from_here(job.script.parent)
    folder = "" if parent == Path() else f"cd {_word(parent)} && "
    if job.options.split_model:
        return [("all GPUs", f"{folder}{single_command(job.options.launch, job.script.name)}")]
    lines = launch_lines(job.options.launch, job.script.name, serves=_serves(result) or _leaves(result))
    return [(where, f"{folder}{command}") for where, command in lines]


def _word(path: Path) -> str:
    return shlex.quote(path_word(str(path)))


def _installs(job: Job) -> list[str]:
    """Return the line that installs a script's packages; empty where there is no requirements file."""
    file = job.script.with_name(file_name(job.script.name))
    return [install_command(str(file), file.read_text(encoding="utf-8"))] if file.exists() else []
