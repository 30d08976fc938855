"""A training that is ended three times, beside one that nobody ends: `python -m benchmarks.going_on [--run]`.

It converts a small notebook with `--resume`, starts the script as a person does, ends it, and starts it again. With
`--run` it does so and writes results/going_on.json; without, it writes the transcript and the picture of
docs/when-a-job-ends-early.md from that file.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from nb2ddp.convert import convert_source
from nb2ddp.options import Options

ROOT = Path(__file__).parent.parent
RESULTS = Path(__file__).parent / "results" / "going_on.json"
PAGE = ROOT / "docs" / "when-a-job-ends-early.md"
PICTURE = ROOT / "docs" / "figures" / "going-on.png"
#: What is sent after how many steps of a start, and how a shell says it.
ENDS = ((signal.SIGKILL, 15, "kill -KILL"), (signal.SIGTERM, 30, "kill -TERM"), (signal.SIGKILL, 45, "kill -KILL"))
NOTEBOOK = """\
# %%
import random
from datasets import Dataset
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments, set_seed
# %%
set_seed(0)
sizes = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4}
model = LlamaForCausalLM(LlamaConfig(vocab_size = 128, attention_dropout = 0.1, **sizes))
rows = [[(start + 7 * n) % 128 for n in range(24)] for start in range(128)]
# %%
trainer = Trainer(
    model = model,
    train_dataset = Dataset.from_dict({"input_ids": rows, "labels": rows}),
    args = TrainingArguments(
        "outputs", per_device_train_batch_size = 4, gradient_accumulation_steps = 2, max_steps = 60,
        learning_rate = 3e-3, logging_steps = 1, report_to = "none", disable_tqdm = True,
    ),
)
trainer.train()
"""
_SAID = re.compile(r"^.*(?:resumes from|told to end|skipped|removed).*$", re.MULTILINE)
_OFTEN = ("minutes=10", "minutes=0.05")


def started(folder: Path, ends: tuple[signal.Signals, int, str] | None) -> dict[str, Any]:
    """One start of the script, ended where it has logged so many losses in all.

    Returns:
        What it said of its going on, the losses by their steps, and its exit code.
    """
    printed, said = folder / "printed.txt", folder / "said.txt"
    with printed.open("w") as out, said.open("w") as err:
        job = subprocess.Popen([sys.executable, "-u", "train.py"], cwd=folder, stdout=out, stderr=err)
        while ends and job.poll() is None:
            if len(logged(printed)) + _before(said) >= ends[1]:
                job.send_signal(ends[0])
                break
            time.sleep(0.01)
        job.wait(timeout=900)
    first = _before(said)
    losses = {first + number: loss for number, loss in enumerate(logged(printed), start=1)}
    return {"said": _SAID.findall(said.read_text()), "losses": losses, "code": job.returncode}


def logged(printed: Path) -> list[float]:
    """The losses that a start has printed, in order."""
    return [float(each) for each in re.findall(r"\{'loss': '?([\d.e-]+)", printed.read_text())]


def _before(said: Path) -> int:
    """The step of the checkpoint that a start goes on from; 0 for none."""
    found = re.search(r"resumes from outputs/checkpoint-(\d+)", said.read_text())
    return int(found[1]) if found else 0


def measure() -> None:
    """Train both, and write what was seen."""
    script = convert_source(NOTEBOOK, options=Options(resume=True), file_name="small.py").files["train.py"]
    assert _OFTEN[0] in script
    found: dict[str, list[dict[str, Any]]] = {}
    with tempfile.TemporaryDirectory() as folder:
        for name, ends in (("whole", (None,)), ("ended", (*ENDS, None))):
            home = Path(folder, name)
            home.mkdir()
            (home / "train.py").write_text(script.replace(*_OFTEN), encoding="utf-8")
            found[name] = [started(home, each) for each in ends]
    whole, ended = found["whole"][0]["losses"], [each["losses"] for each in found["ended"]]
    worst = max(abs(whole[step] - loss) for each in ended for step, loss in each.items())
    assert {step for each in ended for step in each} == set(whole)
    RESULTS.write_text(json.dumps({"worst": worst, **found}, indent=1) + "\n", encoding="utf-8")


def transcript(found: dict[str, Any]) -> str:
    """The starts as a person sees them in a shell."""
    lines = [f"$ sed -i 's/{_OFTEN[0]}/{_OFTEN[1]}/' train.py   # save more often than every ten minutes"]
    for number, each in enumerate(found["ended"]):
        steps = list(map(int, each["losses"]))
        lines += ["$ python train.py", *each["said"], f"(steps {steps[0]} to {steps[-1]})"]
        if number < len(ENDS):
            lines.append(f"$ {ENDS[number][2]} $PID                        # in another shell")
    return "\n".join(lines)


def draw(found: dict[str, Any]) -> None:
    """The losses of all starts over those of the training that nobody ended."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(7, 3.6))
    whole = found["whole"][0]["losses"]
    axes.plot(list(map(int, whole)), list(whole.values()), color="lightgrey", linewidth=6, label="nobody ended it")
    for number, each in enumerate(found["ended"], start=1):
        axes.plot(list(map(int, each["losses"])), list(each["losses"].values()), linewidth=1.5, label=f"start {number}")
    axes.set(xlabel="step", ylabel="loss")
    axes.legend()
    figure.tight_layout()
    figure.savefig(PICTURE, dpi=120)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--run", action="store_true", help="train, and write results/going_on.json")
    if parser.parse_args().run:
        os.environ["CUDA_VISIBLE_DEVICES"] = ""
        measure()
    found = json.loads(RESULTS.read_text(encoding="utf-8"))
    page = PAGE.read_text(encoding="utf-8")
    block = f"```console\n{transcript(found)}\n```"
    PAGE.write_text(re.sub(r"```console\n\$ sed -i.*?```", lambda _: block, page, flags=re.DOTALL), encoding="utf-8")
    draw(found)


if __name__ == "__main__":
    main()
