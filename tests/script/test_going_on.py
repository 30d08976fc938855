"""Launch files of scripts that go on where a job ended early, and the task for SkyPilot."""

from __future__ import annotations

import json
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from nb2ddp.convert import convert_source
from nb2ddp.options import Launch, LaunchError, Options
from nb2ddp.script.launch import launch_files
from tests.notebooks import text

SKY = Launch(processes=16, machines=2, launcher="skypilot", gpu="A100-80GB", mixed_precision="bf16")


def task(launch: Launch = SKY, **about: Any) -> dict[str, Any]:
    return dict(yaml.safe_load(launch_files(launch, "It's 3.py", **about)["It's 3.sky.yaml"]))


def test_a_task_for_skypilot() -> None:
    found = task(secrets=["HF_TOKEN"], resume=True, installs=["pip install -r train.requirements.txt"])
    assert found["name"] == "it-s-3"
    assert (found["num_nodes"], found["workdir"]) == (2, ".")
    assert found["resources"] == {"accelerators": "A100-80GB:8", "use_spot": True}
    assert found["envs"] == {"BUCKET": None, "ACCELERATE_MIXED_PRECISION": "bf16"}
    assert found["secrets"] == {"HF_TOKEN": None}
    assert found["file_mounts"] == {"/job": {"name": "${BUCKET}", "mode": "MOUNT_CACHED"}}
    assert found["setup"] == "pip install -r train.requirements.txt\n"
    assert subprocess.run(["bash", "-n"], input=found["run"], text=True, timeout=10).returncode == 0


def test_without_resume_a_task_keeps_nothing() -> None:
    assert set(task(replace(SKY, mixed_precision="no"))) == {"name", "num_nodes", "workdir", "resources", "run"}


@pytest.mark.parametrize(
    ("name", "job"), [("train.py", "train"), ("3.py", "train-3"), ("Llama3.1_(8B).py", "llama3-1-8b")]
)
def test_names_of_tasks(name: str, job: str) -> None:
    (content,) = (text for file, text in launch_files(SKY, name).items() if file.endswith(".sky.yaml"))
    assert yaml.safe_load(content)["name"] == job


def test_what_runs_in_a_task(tmp_path: Path) -> None:
    (tmp_path / "torchrun").write_text('#!/bin/bash\nprintf "%s\\n" "$@"\n', encoding="utf-8")
    (tmp_path / "torchrun").chmod(0o755)
    sky = {"NUM_NODES": "2", "NODE_RANK": "1", "NODE_IPS": "10.0.0.1\n10.0.0.2", "NUM_GPUS_PER_NODE": "8"}
    environment = {f"SKYPILOT_{name}": value for name, value in sky.items()} | {"PATH": f"{tmp_path}:/usr/bin:/bin"}
    done = subprocess.run(
        ["bash", "-c", task()["run"]], env=environment, capture_output=True, text=True, check=True, timeout=10
    )
    expected = ["--nnodes", "2", "--node-rank", "1", "--master-addr", "10.0.0.1", "--master-port", "29500"]
    assert done.stdout.splitlines() == [*expected, "--nproc-per-node", "8", "It's 3.py"]


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"launcher": "skypilot"}, "kind of GPU"),
        ({"gpu": "H100"}, "no effect"),
        ({"launcher": "skypilot", "gpu": "H100: 8"}, "not the name"),
        ({"launcher": "skypilot", "gpu": "H100", "machines": 2, "main_process_ip": "a"}, "SkyPilot decides"),
    ],
)
def test_what_no_task_is_written_for(given: dict[str, Any], reason: str) -> None:
    with pytest.raises(LaunchError, match=reason):
        Launch(**given)


@pytest.mark.parametrize("resume", [False, True])
def test_slurm_and_torchrun_start_again_only_what_goes_on(resume: bool) -> None:
    slurm = launch_files(Launch(launcher="slurm"), "train.py", resume=resume)["train.sbatch"]
    assert ("#SBATCH --requeue\n" in slurm) == ("scontrol requeue" in slurm) == resume
    torchrun = launch_files(Launch(launcher="torchrun"), "train.py", resume=resume)["train.torchrun.sh"]
    assert ("--max-restarts 3" in torchrun) == ("SHARE_RDZV_TCP_STORE=1" in torchrun) == resume


@pytest.mark.parametrize(
    ("count", "signalled", "code", "requeued"),
    [("0", True, 1, True), ("20", True, 1, False), ("0", False, 1, False), ("0", True, 0, False)],
)
def test_a_slurm_job_that_was_told_to_end_is_requeued(
    count: str, signalled: bool, code: int, requeued: bool, tmp_path: Path
) -> None:
    """srun is a program that sends the batch script SLURM's signal and ends a second later."""
    script = launch_files(Launch(launcher="slurm"), "train.py", resume=True)["train.sbatch"]
    sends = "kill -USR1 $PPID; sleep 0.5" if signalled else "true"
    programs = {"srun": f"{sends}; exit {code}", "scancel": 'echo scancel "$@"', "scontrol": 'echo scontrol "$@"'}
    for name, body in programs.items():
        (tmp_path / name).write_text(f"#!/bin/bash\n{body}\n", encoding="utf-8")
        (tmp_path / name).chmod(0o755)
    job = {"SLURM_JOB_ID": "7", "SLURM_RESTART_COUNT": count, "SLURM_JOB_NODELIST": "a"}
    done = subprocess.run(
        ["bash", "-c", script.replace("sleep 100", "exit")],
        env={**job, "PATH": f"{tmp_path}:/usr/bin:/bin"},
        capture_output=True,
        text=True,
        timeout=20,
    )
    assert done.returncode == code, done.stderr
    assert ("scontrol requeue 7" in done.stdout) == requeued
    assert ("scancel --signal=USR1 7" in done.stdout) == signalled


def test_a_launching_notebook_takes_earlier_checkpoints() -> None:
    options = Options(launch=Launch(launcher="notebook"), resume=True)
    cells = json.loads(convert_source(text(), options=options).files["train.launch.ipynb"])["cells"]
    code = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    assert any('Path("/kaggle/input").rglob("train.py")' in cell for cell in code)
    assert any("!timeout 11h accelerate launch" in cell and "_exit_code == 124" in cell for cell in code)
