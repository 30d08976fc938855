"""The launch files, checked against accelerate's own, by the shell, and against the golden files of `fixtures/launch`.

`pytest tests/script/test_launch.py --update` renews the golden files. `tests/cli/test_lines.py` tests which programs
the launch files start.
"""

from __future__ import annotations

import shutil
import subprocess
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest

from nb2ddp.options import Launch, Launcher, LaunchError
from nb2ddp.script.launch import CONFIG_NAME, launch_command, launch_files

GOLDEN = Path(__file__).parents[2] / "fixtures" / "launch"
LINES = ("--partition=a100,h100", "--gres=gpu:a100:8", "-q high", "--time=1-12:00:00")
CASES = {
    "one-gpu": (Launch(gpus=1), "train.py"),
    "one-machine": (Launch(gpus=8), "Llama3.1_(8B)-Alpaca.py"),
    "two-machines": (Launch(gpus=8, machines=2), "train.py"),
    "slurm-one-machine": (Launch(gpus=4, launcher="slurm"), "Llama3.1_(8B)-Alpaca.py"),
    "slurm-four-machines": (Launch(gpus=8, machines=4, launcher="slurm", slurm=LINES), "train.py"),
    "torchrun-one-machine": (Launch(launcher="torchrun"), "train.py"),
    "torchrun-two-machines": (Launch(gpus=4, machines=2, launcher="torchrun"), "it's.py"),
}


@pytest.mark.parametrize("case", CASES)
def test_files_and_commands(case: str, golden: Callable[[Path, str], None]) -> None:
    """Compare the launch files of a case, and the commands for each machine, with the golden files."""
    launch, script = CASES[case]
    files = launch_files(launch, script)
    ranks = range(1 if launch.launcher == "slurm" else launch.machines)
    commands = "".join(launch_command(launch, script, rank) + "\n" for rank in ranks)
    for name, text in {**files, "commands.txt": commands}.items():
        golden(GOLDEN / case / name, text)
    assert {path.name for path in (GOLDEN / case).iterdir()} == {*files, "commands.txt"}


def test_no_golden_files_are_left_over() -> None:
    assert {path.name for path in GOLDEN.iterdir()} == set(CASES)


@pytest.mark.parametrize("case", CASES)
def test_config_is_what_accelerate_writes(case: str, tmp_path: Path) -> None:
    """Build the config as `accelerate config` does from the answers (accelerate/commands/config/cluster.py)."""
    config_args = pytest.importorskip("accelerate.commands.config.config_args")
    utils = pytest.importorskip("accelerate.utils")
    launch, _ = CASES[case]
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
    config.to_yaml_file(tmp_path / "own.yaml")
    own = GOLDEN / case / CONFIG_NAME
    assert own.read_text() == (tmp_path / "own.yaml").read_text()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        read = config_args.load_config_from_file(str(own))
    assert (read.num_machines, read.num_processes) == (launch.machines, launch.processes)


@pytest.mark.parametrize("script", sorted([*GOLDEN.glob("*/*.sh"), *GOLDEN.glob("*/*.sbatch")]), ids=str)
def test_scripts_pass_shellcheck(script: Path) -> None:
    subprocess.run(["bash", "-n", script], check=True)
    if shutil.which("shellcheck") is None:
        pytest.skip("shellcheck is not installed (apt-get install shellcheck)")
    done = subprocess.run(["shellcheck", "--norc", script], text=True, capture_output=True)
    assert (done.stdout, done.returncode) == ("", 0)


@pytest.mark.parametrize(
    ("variables", "message"),
    [
        ({}, "NODE_RANK: set it to the rank of this machine, from 0 to 3"),
        ({"NODE_RANK": "1"}, "MASTER_ADDR: set it to the host name or address of the machine with NODE_RANK=0"),
    ],
)
def test_torchrun_script_says_what_is_missing(variables: dict[str, str], message: str) -> None:
    text = launch_files(Launch(machines=4, launcher="torchrun"), "train.py")["train.torchrun.sh"]
    done = subprocess.run(["bash", "-c", text], env=variables, capture_output=True, text=True)
    assert done.returncode != 0
    assert message in done.stderr


@pytest.mark.parametrize(
    "text", ["$(touch injected)", 'x" ; touch injected; "', "x\n#SBATCH --uid=0", "a: b %d é", "\\"]
)
def test_no_line_of_sbatch_becomes_two(text: str) -> None:
    try:
        launch = Launch(launcher="slurm", slurm=(f"--comment={text}",))
    except LaunchError:
        assert not text.isprintable()
        return
    lines = launch_files(launch, "train.py")["train.sbatch"].splitlines()
    last = max(number for number, line in enumerate(lines) if line.startswith("#SBATCH"))
    assert lines[last] == f"#SBATCH --comment={text}"
    assert all(line.startswith("#") for line in lines[:last]), "the shell finds only comments above this line"


@pytest.mark.parametrize("name", ["a/train.py", "/train.py", "..", ".", "", "a\\b.py"])
def test_script_is_named_without_its_folder(name: str) -> None:
    with pytest.raises(LaunchError, match="is not the name of a file: the launch files stand beside the script"):
        launch_files(Launch(), name)


@pytest.mark.parametrize(
    ("launcher", "name"),
    [("accelerate", CONFIG_NAME), ("slurm", "train.sbatch"), ("torchrun", CONFIG_NAME)],
)
def test_script_is_not_overwritten(launcher: Launcher, name: str) -> None:
    with pytest.raises(LaunchError, match=r"cannot be called .* that is the name of a launch file"):
        launch_files(Launch(launcher=launcher), name)
