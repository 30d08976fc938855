"""The launch files: against accelerate's own, against the shell, and against the golden files.

`python -m tests.script.test_launch` writes the golden files of `fixtures/launch` anew.
"""

from __future__ import annotations

import itertools
import os
import shlex
import shutil
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import pytest

from nb2ddp.options import Launch, Launcher, LaunchError
from nb2ddp.script.launch import CONFIG_NAME, launch_command, launch_files

GOLDEN = Path(__file__).parents[2] / "fixtures" / "launch"

CASES = {
    "one-gpu": (Launch(gpus=1), "train.py"),
    "one-machine": (Launch(gpus=8), "Llama3.1_(8B)-Alpaca.py"),
    "two-machines": (Launch(gpus=8, machines=2), "train.py"),
    "slurm-one-machine": (Launch(gpus=4, launcher="slurm"), "Llama3.1_(8B)-Alpaca.py"),
    "slurm-four-machines": (
        Launch(
            gpus=8,
            machines=4,
            launcher="slurm",
            slurm=("--partition=a100,h100", "--gres=gpu:a100:8", "--cpus-per-task=64", "--time=1-12:00:00"),
        ),
        "train.py",
    ),
    "torchrun-one-machine": (Launch(launcher="torchrun"), "train.py"),
    "torchrun-two-machines": (Launch(gpus=4, machines=2, launcher="torchrun"), "it's.py"),
}

COMBINATIONS = [
    pytest.param(launcher, machines, each, id=f"{launcher}-{machines}x{each}")
    for launcher, machines, each in itertools.product(("accelerate", "slurm", "torchrun"), (1, 2, 4), (1, 2, 8))
]


def combination(launcher: Launcher, machines: int, each: int) -> Launch:
    return Launch(gpus=each, machines=machines, launcher=launcher)


def golden_texts(launch: Launch, script: str) -> dict[str, str]:
    """Everything that is written for a case, and what to type on each machine."""
    ranks = range(1 if launch.launcher == "slurm" else launch.machines)
    commands = "".join(launch_command(launch, script, rank) + "\n" for rank in ranks)
    return {**launch_files(launch, script), "commands.txt": commands}


@pytest.mark.parametrize("case", CASES)
def test_golden_files(case: str) -> None:
    folder = GOLDEN / case
    wanted = {path.name: path.read_text() for path in folder.iterdir()}
    assert golden_texts(*CASES[case]) == wanted, "python -m tests.script.test_launch writes them anew"


def test_no_golden_files_are_left_over() -> None:
    assert {path.name for path in GOLDEN.iterdir()} == set(CASES)


# The accelerate config


def as_accelerate_writes(launch: Launch, path: Path) -> str:
    """Build what `accelerate config` builds from the answers (accelerate/commands/config/cluster.py)."""
    config_args = pytest.importorskip("accelerate.commands.config.config_args")
    utils = pytest.importorskip("accelerate.utils")
    several = launch.processes > 1
    config = config_args.ClusterConfig(
        compute_environment=utils.ComputeEnvironment.LOCAL_MACHINE,
        distributed_type=utils.DistributedType.MULTI_GPU if several else utils.DistributedType.NO,
        num_processes=launch.processes,
        gpu_ids="all",
        mixed_precision=utils.PrecisionType("no"),
        downcast_bf16="no",
        machine_rank=0,
        num_machines=launch.machines,
        main_process_port=29500 if launch.machines > 1 else None,
        main_training_function="main",
        use_cpu=False,
        rdzv_backend="static",
        same_network=True,
        tpu_env=[],
        dynamo_config={},
        debug=False,
        enable_cpu_affinity=False,
    )
    config.to_yaml_file(path)
    return path.read_text()


@pytest.mark.parametrize(("launcher", "machines", "each"), COMBINATIONS)
def test_config_is_what_accelerate_writes(launcher: Launcher, machines: int, each: int, tmp_path: Path) -> None:
    launch = combination(launcher, machines, each)
    text = launch_files(launch, "train.py")[CONFIG_NAME]
    assert text == as_accelerate_writes(launch, tmp_path / "own.yaml")

    path = tmp_path / CONFIG_NAME
    path.write_text(text)
    config_args = pytest.importorskip("accelerate.commands.config.config_args")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        config = config_args.load_config_from_file(str(path))
    assert (config.num_machines, config.num_processes) == (machines, machines * each)
    config.to_yaml_file(tmp_path / "again.yaml")
    assert (tmp_path / "again.yaml").read_text() == text


# The shell scripts


def shell_scripts(launch: Launch, script: str = "train.py") -> dict[str, str]:
    return {name: text for name, text in launch_files(launch, script).items() if name != CONFIG_NAME}


@pytest.mark.parametrize(("launcher", "machines", "each"), COMBINATIONS)
def test_scripts_parse(launcher: Launcher, machines: int, each: int) -> None:
    scripts = shell_scripts(combination(launcher, machines, each))
    assert bool(scripts) == (launcher != "accelerate")
    for text in scripts.values():
        subprocess.run(["bash", "-n"], input=text, text=True, check=True)


SCRIPTS = {
    text: name
    for name, (launch, script) in {
        **{str(param.id): (combination(*param.values), "train.py") for param in COMBINATIONS},  # type: ignore[arg-type]
        **CASES,
    }.items()
    for text in shell_scripts(launch, script).values()
}


@pytest.mark.parametrize("text", SCRIPTS, ids=SCRIPTS.values())
def test_scripts_pass_shellcheck(text: str) -> None:
    if shutil.which("shellcheck") is None:
        pytest.skip("shellcheck is not installed (apt-get install shellcheck)")
    done = subprocess.run(["shellcheck", "--norc", "-"], input=text, text=True, capture_output=True)
    assert (done.stdout, done.returncode) == ("", 0)


#: Stands for every program that a script calls: writes down how it was called, and then runs what it was given.
RECORDER = """\
#!/bin/bash
name=$(basename "$0")
{ printf '%s\\0' "$name" "$@"; printf '\\n\\0'; } >> "$RECORD"
[ "$name" = scontrol ] && printf 'head\\nother\\n'
[ "$name" = srun ] && while [ "$1" != bash ]; do shift; done
case $name in srun) exec "$@" ;; esac
"""


def run_script(text: str, folder: Path, **variables: str) -> list[list[str]]:
    """Run a script with stand-ins for the cluster's programs; return how each was called, in order."""
    programs = folder / "programs"
    programs.mkdir()
    for name in ("accelerate", "scontrol", "srun", "torchrun"):
        (programs / name).write_text(RECORDER)
        (programs / name).chmod(0o755)
    record = folder / "record"
    record.touch()
    environment = {
        "PATH": f"{programs}:/usr/bin:/bin",
        "RECORD": str(record),
        "HOME": "/home/someone else",
        "SLURM_JOB_ID": "41000",
        "SLURM_JOB_NAME": "my_train",
        "SLURM_JOB_NODELIST": "head,other",
        "SLURM_NODEID": "1",
        **variables,
    }
    subprocess.run(["bash", "-c", text], env=environment, cwd=folder, check=True)
    calls = record.read_text().split("\n\0")[:-1]
    return [call.split("\0")[:-1] for call in calls]


@pytest.mark.parametrize("cores", ["", "6"])
def test_sbatch_script_calls(tmp_path: Path, cores: str) -> None:
    (text,) = shell_scripts(Launch(machines=2, launcher="slurm"), "my train.py").values()
    variables = {"SLURM_CPUS_PER_TASK": cores} if cores else {}
    text += 'printf %s "${SRUN_CPUS_PER_TASK-}" > cores\n'
    scontrol, srun, accelerate = run_script(text, tmp_path, **variables)
    assert (tmp_path / "cores").read_text() == cores
    assert scontrol == ["scontrol", "show", "hostnames", "head,other"]
    assert {"--kill-on-bad-exit=1", "--wait=0"} < set(srun)
    assert accelerate[1:] == [
        *("launch", "--config_file", "accelerate_config.yaml", "--machine_rank", "1"),
        *("--main_process_ip", "head", "--main_process_port", str(10000 + 41000 % 20000)),
        *("--log_dir", "my_train-41000-machine1", "--tee", "3", "my train.py"),
    ]


def test_lines_of_sbatch_come_after_the_scripts_own() -> None:
    (text,) = shell_scripts(Launch(launcher="slurm", slurm=("--gres=gpu:a100:2", "-q high"))).values()
    lines = [line for line in text.splitlines() if line.startswith("#SBATCH")]
    assert lines[-2:] == ["#SBATCH --gres=gpu:a100:2", "#SBATCH -q high"]
    assert text.splitlines()[: len(lines) + 1] == ["#!/bin/bash", *lines]


def test_torchrun_script_calls(tmp_path: Path) -> None:
    (text,) = shell_scripts(Launch(gpus=4, machines=2, launcher="torchrun"), "-x.py").values()
    (call,) = run_script(text, tmp_path, NODE_RANK="1", MASTER_ADDR="head", MASTER_PORT="4000", NNODES="3")
    assert call == [
        *("torchrun", "--nnodes", "3", "--node-rank", "1", "--master-addr", "head", "--master-port", "4000"),
        *("--nproc-per-node", "4", "./-x.py"),
    ]


@pytest.mark.parametrize(
    ("variables", "message"),
    [
        ({}, "NODE_RANK: set it to the rank of this machine, from 0 to 1"),
        ({"NODE_RANK": "1"}, "MASTER_ADDR: set it to the host name or address of the machine with NODE_RANK=0"),
    ],
)
def test_torchrun_script_says_what_is_missing(variables: dict[str, str], message: str) -> None:
    (text,) = shell_scripts(Launch(machines=2, launcher="torchrun")).values()
    done = subprocess.run(["bash", "-c", text], env=variables, capture_output=True, text=True)
    assert done.returncode != 0
    assert message in done.stderr


HOSTILE = [
    "$(touch injected)",
    "`touch injected`",
    "x; touch injected",
    "x' ; touch injected; '",
    'x" ; touch injected; "',
    "x' && touch injected #",
    "${HOME:-$(touch injected)}",
    "$HOME$(touch injected)\\",
    "x\ntouch injected",
    "x\n#SBATCH --uid=0",
    "x\r\ntouch injected",
    "a: b",
    "&x *y {z} [w] | > < ~ !t %d @e",
    "\\",
    "é ü 漢",
    "\x00",
    "",
    " ",
    "-rf",
]


@pytest.mark.parametrize("text", HOSTILE)
def test_nothing_breaks_out_of_a_script_name(text: str, tmp_path: Path) -> None:
    name = f"{text}.py"
    for launcher in ("slurm", "torchrun"):
        launch = Launch(launcher=launcher)
        try:
            (script,) = shell_scripts(launch, name).values()
        except LaunchError:
            assert not name.isprintable() or "\\" in name
            return
        folder = tmp_path / launcher
        folder.mkdir()
        assert run_script(script, folder)[-1][-1].removeprefix("./") == name
        assert not (folder / "injected").exists()
        (written,) = shell_scripts(launch, name)
        assert shlex.split(launch_command(launch, name))[-1].removeprefix("./") == written
    assert shlex.split(launch_command(Launch(), name))[-1].removeprefix("./") == name


@pytest.mark.parametrize("text", HOSTILE)
def test_no_line_of_sbatch_becomes_two(text: str, tmp_path: Path) -> None:
    try:
        launch = Launch(launcher="slurm", slurm=(f"--comment={text}",))
    except LaunchError:
        assert not text.isprintable()
        return
    (script,) = shell_scripts(launch).values()
    run_script(script, tmp_path)
    assert not (tmp_path / "injected").exists()


# The real launchers


@pytest.mark.e2e
@pytest.mark.parametrize(
    "launch",
    [
        Launch(gpus=1),
        Launch(gpus=2),
        Launch(gpus=1, launcher="torchrun"),
        Launch(gpus=2, launcher="torchrun"),
    ],
    ids=["one", "two", "torchrun-one", "torchrun-two"],
)
def test_command_starts_the_processes(launch: Launch, tmp_path: Path) -> None:
    pytest.importorskip("accelerate")
    script = "show (it).py"
    (tmp_path / script).write_text(
        "import os\n"
        "from pathlib import Path\n"
        "rank = os.environ.get('RANK', '0')\n"
        "names = ('LOCAL_RANK', 'WORLD_SIZE', 'ACCELERATE_MIXED_PRECISION')\n"
        "Path(f'rank{rank}').write_text(' '.join(str(os.environ.get(name)) for name in names))\n"
    )
    for name, text in launch_files(launch, script).items():
        (tmp_path / name).write_text(text)
    programs = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    done = subprocess.run(
        launch_command(launch, script),
        shell=True,
        cwd=tmp_path,
        env={**os.environ, "PATH": programs},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    found = {path.name: path.read_text().split() for path in tmp_path.glob("rank*")}
    assert set(found) == {f"rank{rank}" for rank in range(launch.processes)}
    for rank in range(launch.processes):
        local_rank, world_size, precision = found[f"rank{rank}"]
        if launch.processes > 1:
            assert (local_rank, world_size) == (str(rank), str(launch.processes))
        assert precision == ("None" if launch.launcher == "torchrun" else "no")


# Wrong wishes


@pytest.mark.parametrize(
    ("wish", "message"),
    [
        ({"gpus": 0}, "gpus must be at least 1, not 0."),
        ({"machines": 0}, "machines must be at least 1, not 0."),
        ({"machines": 2, "launcher": "uv"}, "The launcher 'uv' is for one machine, not 2."),
        ({"launcher": "mpi"}, "launcher must be one of accelerate, notebook, slurm, torchrun, uv, not 'mpi'."),
        ({"slurm": ("time=1",)}, "slurm: 'time=1' is not an option of sbatch such as --partition=gpu."),
        ({"slurm": ("--x\n",)}, "slurm: '--x\\n' is not an option of sbatch such as --partition=gpu."),
    ],
)
def test_wrong_numbers(wish: dict[str, Any], message: str) -> None:
    with pytest.raises(LaunchError) as caught:
        Launch(**wish)
    assert str(caught.value) == message


@pytest.mark.parametrize("name", ["a/train.py", "/train.py", "..", ".", "", "a\\b.py"])
def test_script_is_named_without_its_folder(name: str) -> None:
    message = f"{name!r} is not the name of a file: the launch files stand beside the script."
    for call in (launch_files, launch_command):
        with pytest.raises(LaunchError) as caught:
            call(Launch(), name)
        assert str(caught.value) == message


@pytest.mark.parametrize(
    ("launcher", "name"),
    [("accelerate", CONFIG_NAME), ("slurm", "train.sbatch"), ("torchrun", CONFIG_NAME)],
)
def test_script_is_not_overwritten(launcher: Launcher, name: str) -> None:
    with pytest.raises(LaunchError) as caught:
        launch_files(Launch(launcher=launcher), name)
    assert str(caught.value) == f"The script cannot be called {name!r}: that is the name of a launch file."


if __name__ == "__main__":
    shutil.rmtree(GOLDEN, ignore_errors=True)
    for case, (launch, script) in CASES.items():
        (GOLDEN / case).mkdir(parents=True)
        for name, text in golden_texts(launch, script).items():
            (GOLDEN / case / name).write_text(text)
