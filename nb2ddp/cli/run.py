"""`nb2ddp run`: convert a notebook, install its packages, and train on all GPUs of this machine."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
from pathlib import Path

import click

from nb2ddp.cli.arguments import USAGE_ERRORS, planned
from nb2ddp.cli.printer import show
from nb2ddp.cli.report import exit_code
from nb2ddp.cli.request import Request
from nb2ddp.project import pool
from nb2ddp.project.files import Job, from_here, read
from nb2ddp.project.outputs import texts
from nb2ddp.project.pool import converted
from nb2ddp.rehearsal import environments, stage, uv
from nb2ddp.results import NotebookError
from nb2ddp.script.launch import path_word
from nb2ddp.script.packages import file_name, install_command

_EXAMPLES = """\
\b
Examples:
  nb2ddp run finetune.ipynb              write finetune.py, and train it on all GPUs
  nb2ddp run finetune.ipynb train.py --gpus 2
  nb2ddp run finetune.ipynb --dry-run    show the commands

\b
Exit code: that of the launcher; 2 if it was not started.
"""


@click.command(epilog=_EXAMPLES)
@click.argument("source", metavar="INPUT")
@click.argument("script", metavar="[OUTPUT.py]", required=False)
@click.option("--gpus", type=click.IntRange(1, 64), help="GPUs to train on (default: all of this machine).")
@click.option("--dry-run", "is_dry", is_flag=True, help="Print the commands instead of running them.")
@click.pass_context
def run(ctx: click.Context, /, source: str, script: str | None, gpus: int | None, is_dry: bool) -> None:
    """Convert INPUT, install its packages, and train on all GPUs of this machine.

    INPUT is a notebook or a link to one. Your edits of its script are kept. uv installs the packages into an
    environment in the cache folder, where the next run finds it. Without a GPU, two processes train on the CPU.
    """
    request = Request((source, script) if script else (source,), {})
    try:
        jobs, mode = planned(request)
        if len(jobs) != 1:
            raise click.UsageError("run takes one notebook", ctx)
        (job,) = jobs
        if job.options.vllm_server:
            raise click.UsageError("start its vLLM server first; nb2ddp INPUT prints the commands", ctx)
        for result in () if is_dry else show(request, mode, pool.run(jobs, mode)):
            if code := exit_code(result, job):
                ctx.exit(code)
        place, installs, launcher = _commands(job, gpus, is_dry=is_dry)
        folder = from_here(job.script.parent)
        if is_dry:
            make, *others = installs
            activate = [".", str(environments.interpreter(place).with_name("activate"))]
            change = [["cd", path_word(str(folder))]] if folder != Path() else []
            typed = (["nb2ddp", *request.paths], make, activate, *others, *change, launcher)
            click.echo("\n".join(map(shlex.join, typed)))
        else:
            _train(place, installs, launcher, folder)
    except USAGE_ERRORS as error:
        raise click.UsageError(str(error), ctx) from None
    except (NotebookError, OSError, uv.UvError) as error:
        click.echo(f"{source}: {str(error).removeprefix(f'{source}: ')}", err=True)
        ctx.exit(2)


def _train(place: Path, installs: list[list[str]], launcher: list[str], folder: Path) -> None:
    """Make an environment, and replace this program by the launcher.

    Args:
        place: the folder of the environment.
        installs: commands of uv.
        launcher: the command that starts the script.
        folder: the script's folder.

    Raises:
        UvError: a command of uv fails.
        OSError: the launcher is missing.
    """
    programs = environments.interpreter(place).parent
    own = {
        "VIRTUAL_ENV": str(place),
        "PATH": os.pathsep.join([str(programs), os.environ.get("PATH", os.defpath)]),
    }
    for line in installs:
        click.echo(f"$ {shlex.join(line)}", err=True)
        if subprocess.run([uv.program(), *line[1:]], env={**uv.settings(), **own}, check=False).returncode:
            raise uv.UvError(f"not started, because `{shlex.join(line[:3])}` failed")
    click.echo(f"$ {shlex.join(launcher)}", err=True)
    os.chdir(folder)
    os.execve(programs / launcher[0], launcher, {**os.environ, **own})


def _commands(job: Job, gpus: int | None, *, is_dry: bool) -> tuple[Path, list[list[str]], list[str]]:
    """Return how to start a job's script here: its environment, uv's commands that make it, and the launcher's command.

    Args:
        job: the job, converted unless `is_dry`.
        gpus: how many processes; None takes one for each GPU.
        is_dry: nothing has been written.

    Raises:
        NotebookError, OSError: a file cannot be read or converted.
    """
    file = from_here(job.script.with_name(file_name(job.script.name)))
    if is_dry:
        text = texts(job, converted(job, read(job.notebook, job.link)), converted)[file.name]
    else:
        text = file.read_text(encoding="utf-8")
    on_gpu = has_gpu()
    if not on_gpu:
        click.echo(f"This machine has no GPU: {gpus or 2} processes train on the CPU.", err=True)
    wanted = environments.Wanted.of({file.name: text})
    place, options = environments.for_training(wanted, has_gpu=on_gpu)
    install, *apart = [["uv", *shlex.split(line)] for line in install_command(str(file), text).split(" && ")]
    make = ["uv", "venv", "--quiet", "--allow-existing", "--python", environments.python(), str(place)]
    script = path_word(job.script.name)
    on_cpu = [] if on_gpu else [str(Path(stage.__file__).with_name("start.py")), "cpu"]
    launcher = ["torchrun", "--nproc_per_node", str(gpus or ("gpu" if on_gpu else 2)), *on_cpu, script]
    if job.options.split_model:
        launcher = ["python", script]
    installs = [make, [*install, *options], *(apart if on_gpu else ())]
    return place, installs, launcher


def has_gpu() -> bool:
    """Return whether this machine has a GPU of NVIDIA or AMD."""
    if shutil.which("nvidia-smi"):
        listed = subprocess.run(["nvidia-smi", "--list-gpus"], capture_output=True, text=True, check=False).stdout
        return listed.startswith("GPU")
    return Path("/dev/kfd").exists()
