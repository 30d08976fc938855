"""A training that has ended does not run again; a job that torchrun restarts has the losses of a whole run."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from nb2ddp.options import Launch
from nb2ddp.script.launch import launch_files
from tests.jobs import ON_CPUS

pytestmark = pytest.mark.e2e

ROOT = Path(__file__).parents[2]

_SCRIPT = (
    ON_CPUS
    + """
import json, os, random, signal
from datasets import Dataset
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainerCallback, TrainingArguments, set_seed
from nb2ddp.runtime.resume import last_checkpoint

rank, world_size = os.environ.get("RANK", "0"), int(os.environ.get("WORLD_SIZE", 1))

class Losses(TrainerCallback):
    def on_step_begin(self, args, state, control, **kwargs):
        attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT")
        if "FAILS" in os.environ and (rank, state.global_step, attempt) == ("1", 5, "0"):
            os.kill(os.getpid(), signal.SIGKILL)

    def on_log(self, args, state, control, logs=None, **kwargs):
        if "loss" in logs and rank == "0":
            with open("losses.jsonl", "a") as lines:
                lines.write(json.dumps([training, state.global_step, logs["loss"], logs["learning_rate"]]) + "\\n")

set_seed(0)
sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
model = LlamaForCausalLM(LlamaConfig(vocab_size=128, attention_dropout=0.1, **sizes))
rows = [[random.Random(n).randrange(128) for _ in range(16)] for n in range(44)]
for training in range(2):
    args = TrainingArguments(
        output_dir="outputs", per_device_train_batch_size=2, gradient_accumulation_steps=4 // world_size, max_steps=9,
        logging_steps=1, learning_rate=1e-2, report_to="none", save_strategy="no", use_cpu=True, disable_tqdm=True)
    data = Dataset.from_dict({"input_ids": rows, "labels": rows})
    trainer = Trainer(model, args, train_dataset=data, callbacks=[Losses()])
    trainer.train(resume_from_checkpoint=last_checkpoint(trainer, minutes=0))
print(sum(weight.double().sum().item() for weight in model.parameters()))
"""
)


def trained(folder: Path) -> str:
    """Run the script in one process, and return the sum of weights that it prints last."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", _SCRIPT]
    return subprocess.run(
        command, cwd=folder, env=environment, check=True, stdout=subprocess.PIPE, text=True
    ).stdout.splitlines()[-1]


def test_a_training_that_has_ended_is_not_trained_again(tmp_path: Path) -> None:
    first, losses = trained(tmp_path), (tmp_path / "losses.jsonl").read_text()
    assert trained(tmp_path) == first
    assert (tmp_path / "losses.jsonl").read_text() == losses


def test_torchrun_starts_again_what_fails(tmp_path: Path) -> None:
    """If one process is killed, torchrun restarts all, as its launch file says: the losses are those of a whole run."""
    found = []
    for name in ("whole", "fails"):
        folder = tmp_path / name
        folder.mkdir()
        files = launch_files(Launch(gpus=2, launcher="torchrun"), "train.py", resume=True)
        for file, content in {**files, "train.py": _SCRIPT}.items():
            (folder / file).write_text(content, encoding="utf-8")
        path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
        environment = {**os.environ, "PATH": path, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
        if name == "fails":
            environment["FAILS"] = "1"
        job = subprocess.run(
            ["bash", "train.torchrun.sh"], cwd=folder, env=environment, capture_output=True, text=True, timeout=300
        )
        assert job.returncode == 0, job.stderr
        assert ("Training resumes from outputs/checkpoint-5" in job.stderr) == (name == "fails"), job.stderr
        found.append((folder / "losses.jsonl").read_text())
    assert found[0] == found[1]
