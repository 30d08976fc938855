"""A training that is killed and started again has the losses of one that ran whole."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from nb2ddp.api import convert_file
from nb2ddp.options import Options
from nb2ddp.rehearsal.plan import read
from nb2ddp.rehearsal.rehearse import Options as Rehearsal
from nb2ddp.rehearsal.rehearse import rehearse
from nb2ddp.rehearsal.report import text_lines

pytestmark = pytest.mark.e2e

NOTEBOOKS = Path(__file__).resolve().parents[2] / "fixtures" / "notebooks"

_SCRIPT = """
import json, random, sys
from datasets import Dataset
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainerCallback, TrainingArguments, set_seed
from nb2ddp.runtime.resume import last_checkpoint

class Losses(TrainerCallback):
    def on_log(self, args, state, control, logs=None, **kwargs):
        if "loss" in logs:
            with open("losses.jsonl", "a") as lines:
                lines.write(json.dumps([training, state.global_step, logs["loss"], logs["learning_rate"]]) + "\\n")

set_seed(0)
sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
model = LlamaForCausalLM(LlamaConfig(vocab_size=128, attention_dropout=0.1, **sizes))
rows = [[random.Random(n).randrange(128) for _ in range(16)] for n in range(44)]
for training in range(2):
    args = TrainingArguments(
        output_dir="outputs", per_device_train_batch_size=2, gradient_accumulation_steps=4, max_steps=9,
        logging_steps=1, learning_rate=1e-2, report_to="none", save_strategy="no", use_cpu=True, disable_tqdm=True)
    data = Dataset.from_dict({"input_ids": rows, "labels": rows})
    trainer = Trainer(model, args, train_dataset=data, callbacks=[Losses()])
    trainer.train(resume_from_checkpoint=last_checkpoint(trainer, minutes=0))
print(sum(weight.double().sum().item() for weight in model.parameters()))
"""


def start(folder: Path, ends_after: int | None = None, by: signal.Signals = signal.SIGKILL) -> subprocess.Popen[str]:
    """Run the script to its end, or until it has logged so many losses."""
    losses = folder / "losses.jsonl"
    root = str(Path(__file__).parents[2])
    job = subprocess.Popen(
        [sys.executable, "-c", _SCRIPT],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": root},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    while ends_after and job.poll() is None:
        if losses.exists() and len(losses.read_text().splitlines()) >= ends_after:
            job.send_signal(by)
            break
        time.sleep(0.005)
    return job


@pytest.mark.short
def test_a_killed_training_goes_on_as_if_nothing_had_happened(tmp_path: Path) -> None:
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    whole.mkdir()
    killed.mkdir()
    expected, errors = start(whole).communicate(timeout=300)
    assert expected, errors
    assert start(killed, ends_after=4).wait(timeout=300) == -signal.SIGKILL
    told = start(killed, ends_after=12, by=signal.SIGTERM)
    assert "resumes from" in told.communicate(timeout=300)[1]
    assert told.returncode == 128 + signal.SIGTERM
    weights, errors = start(killed).communicate(timeout=300)
    assert weights.splitlines()[-1] == expected.splitlines()[-1], errors
    lines = [json.loads(line) for line in (killed / "losses.jsonl").read_text().splitlines()]
    unbroken = [json.loads(line) for line in (whole / "losses.jsonl").read_text().splitlines()]
    assert {tuple(line) for line in lines} == {tuple(line) for line in unbroken}


def test_a_training_that_has_ended_is_not_trained_again(tmp_path: Path) -> None:
    first = start(tmp_path).communicate(timeout=300)[0].splitlines()
    losses = (tmp_path / "losses.jsonl").read_text()
    assert start(tmp_path).communicate(timeout=300)[0].splitlines()[-1] == first[-1]
    assert (tmp_path / "losses.jsonl").read_text() == losses


#: Text and a second training, two texts that are compared, a classifier.
KINDS = ("two_trainings", "sentence_embeddings", "classification")


@pytest.mark.parametrize(("name", "processes"), [*((kind, 2) for kind in KINDS), ("alpaca", 4)])
def test_each_kind_goes_on(name: str, processes: int, tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    convert_file(NOTEBOOKS / f"{name}.ipynb", script, replace(Options(), resume=True))
    verdict = rehearse(read(script), Rehearsal(processes=processes, offline=True))
    assert verdict.code == 0, "\n".join(text_lines(verdict))
    assert verdict.rows[-1].measured.startswith("yes, after SIGKILL and SIGTERM")
