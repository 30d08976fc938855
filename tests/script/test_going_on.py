"""Launch files of scripts that resume after a job ended early."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from nb2ddp.convert import convert_source
from nb2ddp.options import Launch, Options
from nb2ddp.script.launch import launch_files
from tests.notebooks import text


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
    """Replace srun by a program that sends SLURM's signal to the batch script (if `signalled`) and ends soon after."""
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
