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

from benchmarks.gpu.scripts import notebook
from nb2ddp.api import convert_file
from nb2ddp.options import Launch, Options
from nb2ddp.rehearsal.ending import End
from nb2ddp.rehearsal.plan import read
from nb2ddp.rehearsal.rehearse import Options as Rehearsal
from nb2ddp.rehearsal.rehearse import rehearse
from nb2ddp.rehearsal.report import text_lines
from nb2ddp.rehearsal.run import Run
from nb2ddp.script.launch import launch_files

pytestmark = pytest.mark.e2e

NOTEBOOKS = Path(__file__).resolve().parents[2] / "fixtures" / "notebooks"

_SCRIPT = """
import json, os, random, signal, torch
from datasets import Dataset
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainerCallback, TrainingArguments, set_seed
from nb2ddp.runtime.resume import last_checkpoint

load = torch.load  # which does not know "cpu:0", where transformers puts what several processes on CPUs load
torch.load = lambda *args, map_location=None, **words: load(*args, map_location="cpu", **words)
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


def test_torchrun_starts_again_what_fails(tmp_path: Path) -> None:
    """A process is killed, and torchrun starts all again, as its launch file says: the losses are the whole run's."""
    found = []
    for name in ("whole", "fails"):
        folder = tmp_path / name
        folder.mkdir()
        files = launch_files(Launch(gpus=2, launcher="torchrun"), "train.py", resume=True)
        for file, content in {**files, "train.py": _SCRIPT}.items():
            (folder / file).write_text(content, encoding="utf-8")
        path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
        environment = {**os.environ, "PATH": path, "PYTHONPATH": str(Path(__file__).parents[2]), "OMP_NUM_THREADS": "1"}
        if name == "fails":
            environment["FAILS"] = "1"
        job = subprocess.run(
            ["bash", "train.torchrun.sh"], cwd=folder, env=environment, capture_output=True, text=True, timeout=300
        )
        assert job.returncode == 0, job.stderr
        assert ("Training resumes from outputs/checkpoint-5" in job.stderr) == (name == "fails"), job.stderr
        found.append((folder / "losses.jsonl").read_text())
    assert found[0] == found[1]


#: One process, two and four; each is killed or told to end in one number of processes and goes on in another.
ENDS = (
    End("SIGKILL", "step", 2, -1, processes=1),
    End("SIGTERM", "step", 2, -1, processes=1),
    End("SIGKILL", "saved", 3, 1, processes=2),
    End("SIGTERM", "step", 3, -1, processes=4),
)
#: Those whose losses depend on the number of processes, and which resume in two: transformers 5.17 multiplies a
#: classifier's by processes and accumulation steps; whole weights that are trained are rounded apart after two steps.
OF_TWO = ("classification", "two trainings", "full fine-tuning")
KINDS: dict[str, Path | str] = {
    "text": NOTEBOOKS / "alpaca.ipynb",
    "full fine-tuning": NOTEBOOKS / "full_finetuning.ipynb",
    "two trainings": NOTEBOOKS / "two_trainings.ipynb",
    "embeddings": NOTEBOOKS / "sentence_embeddings.ipynb",
    "classification": NOTEBOOKS / "classification.ipynb",
    "packing": "packing",
    "dpo": "dpo",
    "grpo": "grpo",
    "vision": "vision",
}


@pytest.mark.parametrize("kind", [pytest.param(n, marks=pytest.mark.short if n == "embeddings" else ()) for n in KINDS])
def test_each_kind_goes_on(kind: str, tmp_path: Path) -> None:
    source, script = KINDS[kind], tmp_path / "train.py"
    if isinstance(source, str):
        (tmp_path / "train.ipynb").write_text(json.dumps(notebook(source)), encoding="utf-8")
        source = tmp_path / "train.ipynb"
    convert_file(source, script, replace(Options(), resume=True))
    same = kind in OF_TWO
    verdict = rehearse(read(script), Rehearsal(offline=True, steps=4, ends=None if same else ENDS))
    assert verdict.code == 0, "\n".join(text_lines(verdict))
    assert verdict.rows[-1].measured.startswith("yes, after SIGKILL and SIGTERM")
    whole = logged([verdict.job if same else verdict.alone])
    for key, values in logged([run for _, run in verdict.again]).items():
        norm, expected = values.pop("grad_norm"), whole[key]
        assert norm == pytest.approx(expected.pop("grad_norm"), rel=1e-3)  # of GRPO's is rounded apart
        assert values == pytest.approx(expected, rel=1e-6, abs=1e-6)


def logged(runs: list[Run]) -> dict[tuple[int, int], dict[str, float]]:
    """What the main process logged of each step of each training, but for times."""
    found: dict[tuple[int, int], dict[str, float]] = {}
    for run in runs:
        training = 0
        for event in run.ranks[0].seen("train", "log"):
            training += event["kind"] == "train"
            if event["kind"] == "log" and "loss" in event["values"]:
                kept = {
                    name: event["values"].get(name, 0.0) for name in ("loss", "grad_norm", "learning_rate", "reward")
                }
                found[training, event["step"]] = kept
    return found
