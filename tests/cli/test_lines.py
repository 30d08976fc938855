"""Every line that a conversion prints runs unchanged; stand-in programs check their arguments."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests import stand_in
from tests.command import Command, read
from tests.notebooks import CELLS, write

TWO = "--machines 2 --gpus 2"
#: Options of a conversion, and the programs that the printed lines run, in order.
CASES = {
    "accelerate": ("", "torchrun accelerate"),
    "accelerate-one": ("--gpus 1", "torchrun accelerate"),
    "accelerate-two-machines": (TWO, "accelerate accelerate"),
    "accelerate-nine-machines": ("--machines 9", "accelerate accelerate accelerate"),
    "torchrun": ("--launcher torchrun", "torchrun torchrun"),
    "torchrun-two-machines": (f"--launcher torchrun {TWO}", "torchrun torchrun"),
    "slurm": ("--launcher slurm", "sbatch scontrol srun accelerate"),
    "slurm-two-machines": (f"--launcher slurm {TWO}", "sbatch scontrol srun accelerate accelerate"),
    "notebook": ("--launcher notebook", "jupyter"),
    "uv": ("--launcher uv", "uv torchrun uv accelerate"),
}
bash = pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash")
INSTALLS = "!pip install unsloth\n!pip install --no-deps trl==0.22.2\n!pip install --no-build-isolation flash-attn"


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    return stand_in.install(tmp_path / "programs", tmp_path / "log")


def printed(stderr: str) -> list[str]:
    """Return the commands in the output of a conversion."""
    return [line.split(" with: ", 1)[1] for line in stderr.splitlines() if " with: " in line]


def run_lines(options: str, script: str, command: Command, environment: dict[str, str], folder: Path) -> list[str]:
    """Convert a notebook, run each line that is printed, and return the programs that ran."""
    write(folder / "a.ipynb", INSTALLS, *CELLS[1:])
    result = command("a.ipynb", f"./{script}", *options.split())
    assert result.exit_code == 0, result.output
    machines = re.search(r"--machines (\d+)", options)
    environment |= {
        "MACHINES": machines[1] if machines else "1",
        "SLURM_JOB_ID": "7",
        "SLURM_JOB_NAME": "x",
        "SLURM_JOB_NODELIST": "node[0-1]",
    }
    for line in printed(result.stderr):
        done = subprocess.run(["bash", "-c", line], cwd=folder, env=environment, capture_output=True, text=True)
        errors = done.stderr.replace("HF_TOKEN is not set: a step that needs it fails\n", "")
        assert (done.returncode, errors) == (0, "")
    return Path(environment["LOG"]).read_text().split()


@bash
@pytest.mark.parametrize("case", CASES)
def test_each_line_runs_as_it_is_printed(
    case: str, command: Command, environment: dict[str, str], tmp_path: Path
) -> None:
    options, programs = CASES[case]
    ran = run_lines(options, "-o 4/-it's.py", command, environment, tmp_path)
    installs = [] if case in ("notebook", "uv") else ["pip", "pip"]  # the requirements file, and flash-attn
    assert sorted(ran) == sorted([*installs, *programs.split()])


@bash
@pytest.mark.parametrize("name", ["a'; touch evil; '", '$(touch evil) `touch evil` "b', "# coding: utf-16 é a: b"])
def test_a_name_stays_a_name(name: str, command: Command, environment: dict[str, str], tmp_path: Path) -> None:
    for launcher in ("accelerate", "torchrun", "slurm"):
        run_lines(f"--launcher {launcher}", f"{launcher}/{name}.py", command, environment, tmp_path)
        compile((tmp_path / launcher / f"{name}.py").read_bytes(), "x", "exec")
    assert not list(tmp_path.rglob("evil"))


def test_no_folder_is_changed_to_where_the_script_lies_in_this_one(command: Command, tmp_path: Path) -> None:
    write("a.ipynb")
    assert "cd " not in command("a.ipynb", str(tmp_path / "x.py")).stderr
    assert " with: cd sub && torchrun" in command("a.ipynb", str(tmp_path / "sub" / "x.py")).stderr


@bash
def test_the_first_machine_says_what_to_type_on_the_others(
    command: Command, environment: dict[str, str], tmp_path: Path
) -> None:
    write("a.ipynb")
    _, first, second = printed(command("a.ipynb", "a.py", "--launcher", "torchrun", *TWO.split()).stderr)
    environment |= {"MACHINES": "2"}
    done = subprocess.run(["bash", "-c", first], cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    host = subprocess.run(["hostname"], capture_output=True, text=True, check=True).stdout.strip()
    assert done.stdout.endswith(f": {second.replace('=HOST ', f'={host} ')}\n")


def test_the_first_lines_of_a_script_are_those_that_are_printed(command: Command) -> None:
    write("a.ipynb")
    for options, _ in CASES.values():
        if "notebook" not in options:
            lines = printed(command("a.ipynb", "a.py", "--keep", "nothing", *options.split()).stderr)
            lines = [line for line in lines if not line.startswith("pip ")]
            first = read("a.py").split("\n\n")[0]
            assert [line for line in lines if f" {line}\n" not in f"{first}\n"] == []


def test_a_server_takes_a_gpu_that_no_line_trains_on(command: Command) -> None:
    trains = "from trl import GRPOConfig, GRPOTrainer\nGRPOTrainer(model = model, args = GRPOConfig()).train()"
    write("a.ipynb", *CELLS[:2], trains.replace("GRPOConfig()", "GRPOConfig(use_vllm = True)"))
    Path("pyproject.toml").write_text("[tool.nb2ddp]\nvllm-server = true\n")
    output = command("a.ipynb").stderr
    assert [line.split()[0] for line in printed(output)] == ["pip", "accelerate"], output
