"""Write the files that start a script on several GPUs: accelerate config, sbatch and torchrun scripts.

accelerate and torch.distributed do the rendezvous and supervise the processes; these files only pass them the
numbers. Each file is rendered from `templates/`, and its text depends only
on the arguments: it contains no time, no path, and nothing about the converting machine.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import PurePath

from nb2ddp.options import Launch, LaunchError
from nb2ddp.script.templates import render

CONFIG_NAME = "accelerate_config.yaml"
#: The ending of the names of notebooks that launch a script.
LAUNCHING = ".launch.ipynb"
#: Machines of Hugging Face's jobs, by their number of GPUs.
_FLAVORS = {1: "l4x1", 2: "a10g-largex2", 4: "l4x4", 8: "l40sx8"}
#: accelerate's default (accelerate/utils/launch.py, prepare_multi_gpu_env).
DEFAULT_PORT = 29500
#: The placeholder for the name of machine 0 in a line.
ADDRESS = "HOST"


@cache
def accelerate_config(launch: Launch) -> str:
    """Return the text of the file that accelerate's launcher reads; the scripts of a folder share it."""
    return render("accelerate_config.yaml.j2", launch=launch, port=DEFAULT_PORT)


def launch_files(
    launch: Launch,
    script_name: str,
    secrets: Sequence[str] = (),
    *,
    resume: bool = False,
) -> dict[str, str]:
    """Render the files that start the script.

    Args:
        launch: the checked numbers and settings.
        script_name: file name of the converted script; the files belong next to it and are used from there.
        secrets: the variables that the script needs and a job gets from the shell.
        resume: the script resumes its training when restarted, so the job is restarted.

    Returns:
        The text of each file by its name: always `accelerate_config.yaml`, `<stem>.sbatch` for SLURM and
        `<stem>.torchrun.sh` for torchrun.

    Raises:
        LaunchError: `script_name` is not a plain file name, or one of the files would overwrite the script.
    """
    if not script_name.isprintable():
        raise LaunchError(f"The script's name holds a control character: {script_name!r}.")
    if script_name in ("", "..") or PurePath(script_name).name != script_name or "\\" in script_name:
        raise LaunchError(f"{script_name!r} is not the name of a file: the launch files stand beside the script.")
    files = {CONFIG_NAME: accelerate_config(launch)}
    script = shlex.quote(path_word(script_name))
    if launch.launcher == "slurm":
        job_name = re.sub(r"[^A-Za-z0-9.-]+", "_", PurePath(script_name).stem).strip("_-") or "train"
        about = {"secrets": secrets, "resume": resume, "job_name": job_name, "script": script}
        files[side_file(script_name)] = render("slurm.sh.j2", launch=launch, **about)
    if launch.launcher == "torchrun":
        name = side_file(script_name, "torchrun.sh")
        again = shlex.quote(shlex.join(["bash", path_word(name)]))  # as it is echoed
        files[name] = render("torchrun.sh.j2", launch=launch, script=script, again=again, resume=resume)
    if script_name in files:
        raise LaunchError(f"The script cannot be called {script_name!r}: that is the name of a launch file.")
    return files


def launch_lines(launch: Launch, script_name: str, *, serves: bool = False) -> list[tuple[str, str]]:
    """Return the lines to type, in the folder of the files, to start the script on several GPUs.

    Args:
        launch: as for `launch_files`.
        script_name: as for `launch_files`.
        serves: a vLLM server runs on the GPU after those that train.

    Returns:
        Lines for a POSIX shell, each after its purpose: the line for all GPUs of a machine and the one for the
        requested number, or one for each machine (for the first two and the last of more than four).
    """
    if launch.launcher == "slurm":
        return [("several GPUs", launch_command(launch, script_name))]
    if launch.machines > 1:
        ranks = range(launch.machines) if launch.machines <= 4 else (0, 1, launch.machines - 1)
        return [(f"machine {rank}", launch_command(launch, script_name, rank)) for rank in ranks]
    number = f"{launch.processes} GPU{'' if launch.processes == 1 else 's'}"
    counted = number, launch_command(launch, script_name)
    return [counted] if serves else [("all GPUs", shlex.join(_all_gpus(launch, script_name))), counted]


def _all_gpus(launch: Launch, script_name: str) -> list[str]:
    """Return the words that start the script on all GPUs of one machine, as torchrun counts them."""
    return [*_within_uv(launch, script_name), "torchrun", "--nproc_per_node", "gpu", path_word(script_name)]


def launch_command(launch: Launch, script_name: str, rank: int = 0) -> str:
    """Return the line to type, in the folder of the files, to start the script on the chosen number of GPUs.

    Args:
        launch: as for `launch_files`.
        script_name: as for `launch_files`.
        rank: number of the machine on which it is typed. SLURM needs none.

    Returns:
        One line for a POSIX shell.
    """
    if launch.launcher == "slurm":
        return shlex.join(["sbatch", path_word(side_file(script_name))])
    if launch.launcher == "torchrun":
        address = f"MASTER_ADDR={ADDRESS} " if rank else ""
        variables = f"{address}NODE_RANK={rank} " if launch.machines > 1 else ""
        return variables + shlex.join(["bash", path_word(side_file(script_name, "torchrun.sh"))])
    count = ["--num_processes", str(launch.processes)] if launch.processes > 1 else []
    ranks = ["--machine_rank", str(rank), "--main_process_ip", ADDRESS] if launch.machines > 1 else []
    command = ["accelerate", "launch", "--config_file", CONFIG_NAME, *count, *ranks, path_word(script_name)]
    return shlex.join([*_within_uv(launch, script_name), *command])


def _within_uv(launch: Launch, script_name: str) -> list[str]:
    """Return the words before a launcher that uv runs, with the script whose header uv reads."""
    is_uv = launch.launcher == "uv"
    return ["uv", "run", "--no-project", "--with-requirements", path_word(script_name)] if is_uv else []


def single_command(launch: Launch, script_name: str) -> str:
    """Return the line that starts the script on one GPU."""
    return shlex.join(["uv", "run", script_name] if launch.launcher == "uv" else ["python", script_name])


def jobs_command(launch: Launch, script_name: str, secrets: Iterable[str]) -> str:
    """Return the line that starts a Hugging Face job; for several GPUs the job runs the launcher with uv.

    https://huggingface.co/docs/huggingface_hub/guides/jobs

    Args:
        launch: as for `launch_files`.
        script_name: as for `launch_files`.
        secrets: variables that the job gets from the shell.
    """
    job = ["hf", "jobs", "uv", "run", "--flavor", _FLAVORS.get(launch.processes, "FLAVOR")]
    job += [word for name in secrets for word in ("--secrets", name)]
    if launch.processes == 1:
        return shlex.join([*job, script_name])
    return shlex.join([*job, *_all_gpus(launch, script_name)])


def path_word(name: str) -> str:
    """Keep a file name from being read as an option: `-x.py` -> `./-x.py`."""
    return f"./{name}" if name.startswith("-") else name


def side_file(script_name: str, suffix: str = "sbatch") -> str:
    return f"{PurePath(script_name).stem}.{suffix}"
