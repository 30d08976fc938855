"""Every line that a conversion prints is typed as it stands: programs that stand in check what they are given."""

from __future__ import annotations

import os
import re
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from tests.command import Command
from tests.notebooks import CELLS, write

#: Stands in for each program by the name that it is called by: it ends with 0 where its arguments and files are right.
PROGRAM = """\
#!{python}
import argparse, os, subprocess, sys
from pathlib import Path

def script(name):
    assert Path(name).suffix == ".py" and Path(name).is_file(), name
    compile(Path(name).read_text(), name, "exec")
    return name

def whole(name):
    assert Path(name).is_file(), name
    return name

def rank(text):
    assert int(text) < int(os.environ["MACHINES"]), text
    return int(text)

name, words = Path(sys.argv[0]).name, sys.argv[1:]
parser = argparse.ArgumentParser(prog=name)
rest = []
if name == "accelerate":
    assert words.pop(0) == "launch"
    for option, kind in dict(config_file=whole, num_processes=int, machine_rank=rank, main_process_ip=str,
                             main_process_port=int, log_dir=str, tee=int).items():
        parser.add_argument(f"--{{option}}", type=kind)
    parser.add_argument("script", type=script)
    given = parser.parse_args(words)
    assert "num_processes:" in Path(given.config_file).read_text()
    assert os.environ["MACHINES"] == "1" or given.machine_rank is not None
elif name == "torchrun":
    parser.add_argument("--standalone", action="store_true")
    parser.add_argument("--nproc_per_node", "--nproc-per-node", type=lambda n: n if n == "gpu" else int(n))
    parser.add_argument("--nnodes", type=int)
    parser.add_argument("--node-rank", type=rank)
    parser.add_argument("--master-addr")
    parser.add_argument("--master-port", "--master_port", type=int)
    parser.add_argument("script", type=script)
    given = parser.parse_args(words)
    assert os.environ["MACHINES"] == "1" or (given.master_addr and given.node_rank is not None)
elif name == "pip":
    assert words.pop(0) == "install"
    for flag in ("--no-deps", "--no-build-isolation"):
        parser.add_argument(flag, action="store_true")
    parser.add_argument("-r", type=whole, required=True)
    given = parser.parse_args(words)
elif name == "uv":
    assert words.pop(0) == "run"
    parser.add_argument("--no-project", action="store_true")
    parser.add_argument("--with-requirements", type=script)
    parser.add_argument("command", nargs=argparse.REMAINDER)
    given = parser.parse_args(words)
    assert "# /// script" in Path(given.with_requirements).read_text()
    rest = given.command
elif name == "sbatch":
    parser.add_argument("job", type=whole)
    rest = ["bash", parser.parse_args(words).job]
elif name == "scontrol":
    print("node0")
elif name == "srun":
    for rank_of_machine in range(int(os.environ["MACHINES"])):
        at = words.index("bash")
        subprocess.run(words[at:], env=os.environ | {{"SLURM_NODEID": str(rank_of_machine)}}, check=True)
elif name == "jupyter":
    assert words.pop(0) == "lab"
    parser.add_argument("notebook", type=whole)
    parser.parse_args(words)
else:
    raise SystemExit(f"{{name}} has no stand-in")
with open(os.environ["LOG"], "a") as log:
    log.write(name + "\\n")
if rest:
    sys.exit(subprocess.run(rest).returncode)
"""
TWO = "--num-machines 2 --num-processes 4"
#: What is asked for, and the programs that the lines run, in order.
CASES = {
    "accelerate": ("", "torchrun accelerate"),
    "accelerate-fp16": ("--mixed-precision fp16 --main-process-port 29600", "torchrun accelerate"),
    "accelerate-free-port": ("--main-process-port 0", "torchrun accelerate"),
    "accelerate-one": ("--num-processes 1", "torchrun accelerate"),
    "accelerate-two-machines": (f"{TWO} --main-process-ip gpu-1", "accelerate accelerate"),
    "accelerate-nine-machines": (
        "--num-machines 9 --num-processes 18 --main-process-ip gpu-1",
        "accelerate accelerate accelerate",
    ),
    "torchrun": ("--launcher torchrun", "torchrun torchrun"),
    "torchrun-two-machines": (f"--launcher torchrun {TWO}", "torchrun torchrun"),
    "torchrun-address": (f"--launcher torchrun {TWO} --main-process-ip gpu-1", "torchrun torchrun"),
    "slurm": ("--launcher slurm", "sbatch scontrol srun accelerate"),
    "slurm-two-machines": (f"--launcher slurm {TWO}", "sbatch scontrol srun accelerate accelerate"),
    "notebook": ("--launcher notebook", "jupyter"),
    "uv": ("--launcher uv", "uv torchrun uv accelerate"),
}
INSTALLS = "!pip install unsloth\n!pip install --no-deps trl==0.22.2\n!pip install --no-build-isolation flash-attn"


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    folder = tmp_path / "programs"
    folder.mkdir()
    for name in ("accelerate", "torchrun", "pip", "uv", "sbatch", "scontrol", "srun", "jupyter"):
        program = folder / name
        program.write_text(PROGRAM.format(python=sys.executable))
        program.chmod(program.stat().st_mode | stat.S_IXUSR)
    return {"PATH": f"{folder}{os.pathsep}/usr/bin{os.pathsep}/bin", "LOG": str(tmp_path / "log"), "MACHINES": "1"}


def printed(stderr: str) -> list[str]:
    """The commands in what a conversion prints."""
    return [line.split(" with: ", 1)[1] for line in stderr.splitlines() if " with: " in line]


@pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash")
@pytest.mark.parametrize("script", ["x.py", "-o 4/-it's.py"])
@pytest.mark.parametrize("case", CASES)
def test_each_line_runs_as_it_is_printed(
    case: str, script: str, command: Command, environment: dict[str, str], tmp_path: Path
) -> None:
    options, programs = CASES[case]
    write(tmp_path / "a.ipynb", INSTALLS, *CELLS[1:])
    result = command("a.ipynb", f"./{script}", "--requirements", *options.split())
    assert result.exit_code == 0, result.output
    machines = re.search(r"num-machines (\d+)", options)
    environment |= {
        "MACHINES": machines[1] if machines else "1",
        "SLURM_JOB_ID": "7",
        "SLURM_JOB_NODELIST": "node[0-1]",
    }
    lines = printed(result.stderr)
    for line in lines:
        done = subprocess.run(["bash", "-c", line], cwd=tmp_path, env=environment, capture_output=True, text=True)
        said = done.stderr.replace("HF_TOKEN is not set: a step that needs it fails\n", "")
        assert (done.returncode, said) == (0, "")
    ran = Path(environment["LOG"]).read_text().split()
    assert sorted(ran) == sorted(["pip", "pip", "pip", *programs.split()])
    assert "needs packages" not in result.stderr


def test_no_folder_is_changed_to_where_the_script_lies_in_this_one(command: Command, tmp_path: Path) -> None:
    write(tmp_path / "a.ipynb")
    assert "cd " not in command("a.ipynb", str(tmp_path / "x.py")).stderr
    assert " with: cd sub && torchrun" in command("a.ipynb", str(tmp_path / "sub" / "x.py")).stderr


@pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash")
def test_the_first_machine_says_what_to_type_on_the_others(
    command: Command, environment: dict[str, str], tmp_path: Path
) -> None:
    write(tmp_path / "a.ipynb")
    first, second = printed(command("a.ipynb", "a.py", "--launcher", "torchrun", *TWO.split()).stderr)
    environment |= {"MACHINES": "2"}
    done = subprocess.run(["bash", "-c", first], cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    host = subprocess.run(["hostname"], capture_output=True, text=True, check=True).stdout.strip()
    assert done.stdout.endswith(f": {second.replace('=HOST ', f'={host} ')}\n")


@pytest.mark.parametrize(
    ("launcher", "is_said"), [("accelerate", True), ("torchrun", True), ("notebook", False), ("uv", False)]
)
def test_packages_are_asked_for_where_nothing_installs_them(
    launcher: str, is_said: bool, command: Command, tmp_path: Path
) -> None:
    write(tmp_path / "a.ipynb")
    assert ("needs packages" in command("a.ipynb", "--launcher", launcher).stderr) == is_said


def test_the_first_lines_of_a_script_are_those_that_are_printed(command: Command, tmp_path: Path) -> None:
    write(tmp_path / "a.ipynb")
    for options, _ in CASES.values():
        if "notebook" not in options:
            lines = printed(command("a.ipynb", "a.py", "--force", *options.split()).stderr)
            first = (tmp_path / "a.py").read_text().split("\n\n")[0]
            assert [line for line in lines if f" {line}\n" not in f"{first}\n"] == []


def test_a_server_takes_a_gpu_that_no_line_trains_on(command: Command, tmp_path: Path) -> None:
    trains = "from trl import GRPOConfig, GRPOTrainer\nGRPOTrainer(model = model, args = GRPOConfig()).train()"
    write(tmp_path / "a.ipynb", *CELLS[:2], trains.replace("GRPOConfig()", "GRPOConfig(use_vllm = True)"))
    said = command("a.ipynb", "--vllm-server").stderr
    assert [line.split()[0] for line in printed(said)] == ["accelerate"], said
