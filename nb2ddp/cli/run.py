"""`nb2ddp run`: convert a notebook, install its packages, and train on all GPUs of this machine."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import click

from nb2ddp.cli.arguments import USAGE_ERRORS, planned
from nb2ddp.cli.printer import show
from nb2ddp.cli.report import exit_code
from nb2ddp.cli.request import Request
from nb2ddp.project import pool
from nb2ddp.project.files import Job, from_here, read
from nb2ddp.project.outputs import texts
from nb2ddp.project.pool import converted, recalling
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
        start = _start(job, gpus, is_dry=is_dry)
        if is_dry:
            click.echo("\n".join([shlex.join(["nb2ddp", *request.paths]), *start.typed]))
        else:
            start.run()
    except USAGE_ERRORS as error:
        raise click.UsageError(str(error), ctx) from None
    except (NotebookError, OSError, uv.UvError) as error:
        click.echo(f"{source}: {str(error).removeprefix(f'{source}: ')}", err=True)
        ctx.exit(2)


@dataclass(frozen=True)
class _Start:
    """How a script is started.

    Attributes:
        environment: the folder of its environment.
        installs: commands of uv.
        folder: the script's folder.
        launcher: the command that starts the script there.
    """

    environment: Path
    installs: list[list[str]]
    folder: Path
    launcher: list[str]

    @property
    def programs(self) -> Path:
        """The folder of the environment's programs."""
        return environments.interpreter(self.environment).parent

    @property
    def typed(self) -> list[str]:
        """The commands, as a person types them in a POSIX shell."""
        make, *installs = self.installs
        change = [["cd", path_word(str(self.folder))]] if self.folder != Path() else []
        return [
            shlex.join(line)
            for line in (make, [".", str(self.programs / "activate")], *installs, *change, self.launcher)
        ]

    def run(self) -> None:
        """Make the environment, and replace this program by the launcher.

        Raises:
            UvError: a command of uv fails.
            OSError: the launcher is missing.
        """
        path = os.pathsep.join([str(self.programs), os.environ.get("PATH", os.defpath)])
        own = {"VIRTUAL_ENV": str(self.environment), "PATH": path}
        for line in self.installs:
            click.echo(f"$ {shlex.join(line)}", err=True)
            if subprocess.run([uv.program(), *line[1:]], env={**uv.settings(), **own}, check=False).returncode:
                raise uv.UvError(f"not started, because `{shlex.join(line[:3])}` failed")
        click.echo(f"$ {shlex.join(self.launcher)}", err=True)
        os.chdir(self.folder)
        os.execve(self.programs / self.launcher[0], self.launcher, {**os.environ, **own})


def _start(job: Job, gpus: int | None, *, is_dry: bool) -> _Start:
    """Return how the script of a job is started on this machine.

    Args:
        job: the job, converted unless `is_dry`.
        gpus: how many processes; None takes one for each GPU.
        is_dry: nothing has been written.

    Raises:
        NotebookError, OSError: a file cannot be read or converted.
    """
    file = from_here(job.script.with_name(file_name(job.script.name)))
    if is_dry:
        text = texts(job, converted(job, read(job.notebook, job.link)), recalling(job))[file.name]
    else:
        text = file.read_text(encoding="utf-8")
    has_gpu = _has_gpu()
    if not has_gpu:
        click.echo(f"This machine has no GPU: {gpus or 2} processes train on the CPU.", err=True)
    wanted = environments.Wanted.of({file.name: text})
    place, options = environments.for_training(wanted, has_gpu=has_gpu)
    install, *apart = [["uv", *shlex.split(line)] for line in install_command(str(file), text).split(" && ")]
    make = ["uv", "venv", "--quiet", "--allow-existing", "--python", environments.python(), str(place)]
    script = path_word(job.script.name)
    on_cpu = [] if has_gpu else [str(Path(stage.__file__).with_name("start.py")), "cpu"]
    launcher = ["torchrun", "--nproc_per_node", str(gpus or ("gpu" if has_gpu else 2)), *on_cpu, script]
    if job.options.split_model:
        launcher = ["python", script]
    installs = [make, [*install, *options], *(apart if has_gpu else ())]
    return _Start(place, installs, from_here(job.script.parent), launcher)


def _has_gpu() -> bool:
    """True if this machine has a GPU of NVIDIA or AMD."""
    if shutil.which("nvidia-smi"):
        listed = subprocess.run(["nvidia-smi", "--list-gpus"], capture_output=True, text=True, check=False).stdout
        return listed.startswith("GPU")
    return Path("/dev/kfd").exists()
