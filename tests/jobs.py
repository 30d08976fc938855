"""A notebook that trains on the CPU in seconds, converted with its launch files, for tests to start and inspect.

It trains a small transformers model without Unsloth, because these tests are about launchers and how jobs end. Other
tests rehearse the training with Unsloth.
"""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from nb2ddp.api import convert_file
from nb2ddp.options import Launch, Options
from tests.notebooks import write

if TYPE_CHECKING:
    from collections.abc import Callable

ROOT = Path(__file__).resolve().parents[1]
SCRIPT = "train.py"
STEPS = 20
#: The first lines of a script, for several processes on CPUs. `torch.load` does not know "cpu:0", to which transformers
#: maps checkpoints. Each process waits for gloo's threads, as in a rehearsal: otherwise they may abort it at its end.
ON_CPUS = """\
import functools, torch
from nb2ddp.rehearsal.stage.gloo import pause_after
load = torch.load
torch.load = lambda *args, map_location=None, **words: load(*args, map_location="cpu", **words)
torch.distributed.destroy_process_group = functools.partial(pause_after, torch.distributed.destroy_process_group)
"""
#: The notebook's own module, such as a user has beside a notebook. Each process writes the losses that it logs.
_STEPS = (
    ON_CPUS
    + """
import json, os
from transformers import TrainerCallback

class Steps(TrainerCallback):
    def on_log(self, args, state, control, logs=None, **kwargs):
        if "loss" in logs:
            with open(os.path.join(os.environ["STEPS_FOLDER"], os.environ.get("RANK", "0") + ".jsonl"), "a") as lines:
                lines.write(json.dumps([state.global_step, float(logs["loss"])]) + "\\n")
"""
)
_MODEL = """\
import random
from datasets import Dataset
from steps import Steps
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments, set_seed

set_seed(0)
sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
model = LlamaForCausalLM(LlamaConfig(vocab_size = 128, **sizes))
rows = [[random.Random(n).randrange(128) for _ in range(16)] for n in range(400)]
dataset = Dataset.from_dict({"input_ids": rows, "labels": rows})
"""
_TRAINER = """\
trainer = Trainer(
    model = model,
    train_dataset = dataset,
    callbacks = [Steps()],
    args = TrainingArguments(
        per_device_train_batch_size = 2,
        gradient_accumulation_steps = 4,
        max_steps = 20,
        learning_rate = 1e-3,
        logging_steps = 1,
        save_strategy = "no",
        output_dir = "outputs",
        report_to = "none",
        use_cpu = True,
    ),
)
"""
CELLS = (
    "!pip install transformers",
    _MODEL,
    _TRAINER,
    "trainer.train()",
    'model.save_pretrained("saved")',
    'again = LlamaForCausalLM.from_pretrained("saved")\nprint("layers", len(again.model.layers))',
)


@dataclass(frozen=True)
class Job:
    """A folder that all machines share: `work` contains the notebook, the script and its launch files."""

    folder: Path
    launch: Launch

    @property
    def work(self) -> Path:
        return self.folder / "work"

    @property
    def environment(self) -> dict[str, str]:
        """The environment of the job: this Python's programs and libraries, without variables of an outer launcher."""
        launched = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
        return {
            **{name: value for name, value in os.environ.items() if name not in launched},
            "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]),
            "OMP_NUM_THREADS": "1",
            "HF_HUB_OFFLINE": "1",
            "STEPS_FOLDER": str(self.folder / "steps"),
        }

    def losses(self, rank: int) -> dict[int, float]:
        """Return the loss of each step that a process has logged so far."""
        file = self.folder / "steps" / f"{rank}.jsonl"
        return dict(map(json.loads, file.read_text().splitlines())) if file.exists() else {}

    def difference(self, rank: int, alone: Job) -> float:
        """Return the largest difference between the losses of a process and those of one that trained alone."""
        own, other = self.losses(rank), alone.losses(0)
        if own.keys() != other.keys() or not own:
            return math.inf
        return max(abs(own[step] - other[step]) for step in own)

    def processes(self) -> dict[int, dict[str, str]]:
        """Return the job's processes on all machines, including launchers: PID to environment."""
        found = {}
        mark = ("STEPS_FOLDER", str(self.folder / "steps"))
        for entry in Path("/proc").glob("[0-9]*"):
            try:
                pairs = (entry / "environ").read_bytes().decode(errors="replace").split("\0")
                state = (entry / "stat").read_text().rpartition(")")[2].split()[0]
            except OSError:  # the process has just ended
                continue
            variables = dict(pair.split("=", 1) for pair in pairs if "=" in pair)
            if mark in variables.items() and state != "Z":
                found[int(entry.name)] = variables
        return found

    def worker(self, rank: int) -> int:
        """Return the PID of the training process of that rank, whose parent is its machine's launcher."""
        workers = {pid: own for pid, own in self.processes().items() if own.get("RANK") == str(rank)}
        (pid,) = (pid for pid in workers if _parent(pid) not in workers)
        return pid


def prepare(folder: Path, launch: Launch, *, steps: int = STEPS, resume: bool = False) -> Job:
    """Write the notebook and convert it.

    Args:
        folder: a new folder for everything about the job.
        launch: the settings for which to write the launch files.
        steps: the number of training steps.
        resume: let the script resume its training, and save it after each step.
    """
    job = Job(folder.resolve(), launch)
    (job.folder / "steps").mkdir(parents=True)
    trainer = _TRAINER.replace("max_steps = 20", f"max_steps = {steps}")
    notebook = write(job.work / "train.ipynb", *(trainer if cell is _TRAINER else cell for cell in CELLS))
    (job.work / "steps.py").write_text(_STEPS)
    script = job.work / SCRIPT
    convert_file(notebook, script, replace(Options(), launch=launch, resume=resume))
    if resume:
        change(script, "minutes=10", "minutes=0")
    return job


def change(script: Path, before: str, after: str) -> None:
    """Replace a text that occurs once in a script."""
    text = script.read_text()
    assert text.count(before) == 1, before
    script.write_text(text.replace(before, after))


def train_alone(folder: Path) -> Job:
    """Train as one process without a launcher, to record the losses."""
    job = prepare(folder, Launch())
    subprocess.run([sys.executable, SCRIPT], cwd=job.work, env=job.environment, check=True, timeout=300)
    assert len(job.losses(0)) == STEPS
    return job


def wait_for(what: Callable[[], bool], seconds: float) -> bool:
    """Wait until `what` returns true. Return whether it did so in time."""
    deadline = time.monotonic() + seconds
    while not (true := what()) and time.monotonic() < deadline:
        time.sleep(0.2)
    return true


def _parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
