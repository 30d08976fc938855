"""A job that gets a signal before its time limit is requeued, and ends with the weights of an uninterrupted job.

Here scancel sends the batch script the signal that SLURM sends before the limit (`--signal=B:USR1@120`).
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from nb2ddp.options import Launch
from nb2ddp.script.launch import launch_files
from tests.jobs import ON_CPUS, wait_for

if TYPE_CHECKING:
    from .slurm import Cluster

pytestmark = pytest.mark.cluster

ROOT = Path(__file__).resolve().parents[2]
SECONDS = 600
SCRIPT = (
    ON_CPUS
    + """
import os, random, time
from datasets import Dataset
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainerCallback, TrainingArguments, set_seed
from nb2ddp.runtime.resume import last_checkpoint

class Slow(TrainerCallback):  # so slow that the job's first two runs do not end before they are told to
    def on_step_begin(self, args, state, control, **kwargs):
        run = os.environ.get("SLURM_RESTART_COUNT", "0")
        if "SLURM_JOB_ID" in os.environ and run < "2":
            open("begun_" + run, "w").close()
            time.sleep(2)

set_seed(0)
sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
model = LlamaForCausalLM(LlamaConfig(vocab_size=128, attention_dropout=0.1, **sizes))
rows = [[random.Random(n).randrange(128) for _ in range(16)] for n in range(44)]
args = TrainingArguments(
    output_dir="outputs", per_device_train_batch_size=2, max_steps=170, learning_rate=1e-2, report_to="none",
    save_strategy="no", use_cpu=True, disable_tqdm=True)
data = Dataset.from_dict({"input_ids": rows, "labels": rows})
trainer = Trainer(model, args, train_dataset=data, callbacks=[Slow()])
trainer.train(resume_from_checkpoint=last_checkpoint(trainer))
if os.environ.get("RANK", "0") == "0":
    with open("weights.txt", "w") as file:
        file.write(str(sum(weight.double().abs().sum().item() for weight in model.parameters())))
"""
)


def test_a_job_is_requeued_before_its_time_limit(cluster: Cluster, tmp_path: Path) -> None:
    limits = ("--time=30", "--partition=test", "--cpus-per-task=2", "--mem=4G")
    launch = Launch(gpus=2, launcher="slurm", slurm=limits)
    programs = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    environment = {
        **os.environ,
        **cluster.environment,
        "PATH": programs,
        "PYTHONPATH": str(ROOT),
        "OMP_NUM_THREADS": "1",
    }
    whole, job = tmp_path / "whole", tmp_path / "job"
    for folder in (whole, job):
        folder.mkdir()
        (folder / "train.py").write_text(SCRIPT, encoding="utf-8")
        for name, text in launch_files(launch, "train.py", resume=True).items():
            (folder / name).write_text(text, encoding="utf-8")
    torchrun = ["torchrun", "--standalone", "--nproc-per-node", "2", "train.py"]
    subprocess.run(torchrun, cwd=whole, env=environment, check=True, timeout=300)
    submitted = subprocess.run(
        ["sbatch", "train.sbatch"], cwd=job, env=environment, capture_output=True, text=True, check=True
    )
    number = submitted.stdout.removeprefix("Submitted batch job ").strip()

    def field(name: str) -> str:
        found = re.search(rf"\b{name}=(\S+)", cluster.call("scontrol", "show", "job", number))
        return found[1] if found else ""

    signaled: set[str] = set()

    def is_over() -> bool:
        run = field("Restarts")
        if run not in signaled and (job / f"begun_{run}").exists():
            signaled.add(run)
            cluster.call("scancel", "--batch", "--signal=USR1", number)
        if field("JobState") == "PENDING":  # requeued: SLURM would make it wait for two minutes
            time.sleep(2)  # a job that starts in the second of its requeue ends with "Job credential revoked"
            cluster.call("scontrol", "update", f"JobId={number}", "StartTime=now", check=False)
        return field("JobState") in ("COMPLETED", "FAILED", "TIMEOUT", "CANCELLED")

    assert wait_for(is_over, SECONDS)
    logs = "\n".join(f"{log.name}:\n{log.read_text()}" for log in sorted(job.glob("*.log")))
    assert field("JobState") == "COMPLETED", logs
    assert field("Restarts") == "2", logs
    assert "resumes from outputs/checkpoint-" in logs, logs
    assert (job / "weights.txt").read_text() == (whole / "weights.txt").read_text()
