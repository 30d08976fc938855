"""Say what to type after a conversion: install, start, and how many GPUs that takes."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path

from nb2ddp.options import Launch
from nb2ddp.project.files import Job
from nb2ddp.results import Result, Status
from nb2ddp.rules import vllm_server
from nb2ddp.script.launch import launch_command
from nb2ddp.script.packages import GROUPS, file_name, install_command


def next_steps(jobs: Sequence[Job], results: Sequence[Result]) -> Iterator[str]:
    """What to type next, once scripts were written.

    Args:
        jobs: what was converted.
        results: what became of it, in the same order.
    """
    done = [(job, result) for job, result in zip(jobs, results, strict=True) if result.status is Status.CONVERTED]
    if len(done) == 1:
        yield from _of_one(*done[0])
    elif done:
        job = done[0][0]
        command = " && ".join([*_installs(job), launch_command(job.options.launch, job.script.name)])
        yield f"Start one in its folder, for example in {shlex.quote(str(job.script.parent))}: {command}"


def _of_one(job: Job, result: Result) -> Iterator[str]:
    if installs := _installs(job):
        yield f"Install its packages with: {' && '.join(installs)}"
    elif result.packages:
        yield "The notebook needs packages: --requirements writes them beside the script."
    if any(each.code == vllm_server.RULE.code for each in result.diagnostics):
        yield "Start its vLLM server first, as its first lines say."
    command = launch_command(job.options.launch, job.script.name)
    folder = "" if job.script.parent == Path() else f" in {shlex.quote(str(job.script.parent))}"
    yield f"Start it{folder} with: {command}"
    if how_many := _processes(job.options.launch):
        yield how_many


def _installs(job: Job) -> list[str]:
    """What installs the packages that lie beside a script."""
    name = job.script.name
    return [install_command(name, each) for each in GROUPS if job.script.with_name(file_name(name, each)).exists()]


def _processes(launch: Launch) -> str:
    """How many processes that starts, and what to change for another number."""
    if launch.launcher != "accelerate" or launch.machines > 1:
        return ""
    gpus = "one GPU" if launch.processes == 1 else f"{launch.processes} GPUs"
    return f"That takes {gpus}; for another number change --num_processes."
