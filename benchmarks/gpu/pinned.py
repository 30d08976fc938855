"""Training in the versions that most notebooks pin: the notebook's own code, then the script's, on one GPU.

    python -m benchmarks.gpu.pinned write FOLDER                                # converts; needs no GPU
    python -m benchmarks.gpu.pinned run FOLDER --hub HUB --results FILE --gpu 0 [--jobs dpo grpo]

The versions are those that Python finds; runs follow each other. `python -m benchmarks.gpu.report pinned` prints them.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
from importlib.metadata import version
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

HERE = Path(__file__).resolve().parent
RESULTS = HERE.parent / "results" / "pinned.json"
WARM_UP = 3
LETTERS = {"dataset": 'load_dataset("bench/letters", split = "train")', "max_steps": "12"}
WIDE = {"load_in_4bit": "False", "max_steps": "12"}
SMALL = {"model_name": '"bench/Llama-1B"', **WIDE}
#: A job's title, its notebook and the settings that replace the notebook's.
JOBS: dict[str, tuple[str, str, dict[str, str]]] = {
    "sft_4bit": ("SFT, 4-bit LoRA, 3.2B, 400 to 500 tokens", "sft", LETTERS),
    "sft_16bit": ("SFT, 16-bit LoRA, 3.2B, 400 to 500 tokens", "sft", {**LETTERS, **WIDE}),
    "sft_full": (
        "SFT, full fine-tuning, 1.2B, 400 to 500 tokens",
        "sft",
        {**LETTERS, **SMALL, "full_finetuning": "True", "learning_rate": "2e-5"},
    ),
    "dpo": ("DPO, 16-bit LoRA, 1.2B", "dpo", SMALL),
    "grpo": ("GRPO without an engine, 16-bit LoRA, 1.2B", "grpo", {"model_name": '"bench/Llama-1B"'}),
}
PACKAGES = "torch unsloth unsloth_zoo transformers trl datasets accelerate peft bitsandbytes huggingface_hub triton"


def write(root: Path) -> None:
    """Write each job's notebook as nbconvert exports it, and as nb2ddp converts it."""
    from benchmarks.gpu import scripts
    from nb2ddp.api import convert_file

    for name, (_, notebook, settings) in JOBS.items():
        book = scripts.changed(notebook, settings)
        for who in ("notebook", "converted"):
            folder = root / name / who
            folder.mkdir(parents=True, exist_ok=True)
            if who == "notebook":
                (folder / "train.py").write_text(scripts.exported(book))
            else:
                (folder / "notebook.ipynb").write_text(json.dumps(book))
                convert_file(folder / "notebook.ipynb", folder / "train.py")


def measured(folder: Path, hub: Path, gpu: str, seconds: float) -> dict[str, Any]:
    """Run a script, and say what its training wrote down: seconds, bytes, losses."""
    for entry in hub.iterdir():
        if not (folder / entry.name).exists():
            (folder / entry.name).symlink_to(entry, target_is_directory=True)
    events = folder / "events"
    shutil.rmtree(events, ignore_errors=True)
    events.mkdir()
    site = f"{HERE / 'site'}:{HERE.parents[1] / 'tests/e2e/site'}:{HERE.parents[1]}:{os.environ.get('PYTHONPATH', '')}"
    env = {**os.environ, "PYTHONPATH": site, "BENCH_FOLDER": str(events), "CUDA_VISIBLE_DEVICES": gpu}
    start = time.time()
    with (folder / "log.txt").open("w") as log:
        try:
            command = [sys.executable, "train.py"]
            code = subprocess.run(command, cwd=folder, env=env, stdout=log, stderr=log, timeout=seconds).returncode
        except subprocess.TimeoutExpired:
            code = 124
    facts: dict[str, Any] = {"code": code, "seconds": round(time.time() - start, 1)}
    lines = (events / "0.jsonl").read_text().splitlines() if (events / "0.jsonl").exists() else []
    found: dict[str, list[dict[str, Any]]] = {}
    for event in map(json.loads, lines):
        found.setdefault(event["event"], []).append(event)
    if "end" not in found:
        return {**facts, "said": (folder / "log.txt").read_text()[-2000:]}
    begin, end, steps = found["begin"][0], found["end"][0], found["step"]
    times = [round(later["time"] - earlier["time"], 4) for earlier, later in pairwise(steps)][WARM_UP:]
    return {
        **facts,
        **{name: begin[name] for name in ("per_device", "accumulation", "dtypes")},
        "step_seconds": times,
        "median_step": median(times),
        "losses": [step["loss"] for step in steps],
        "grad_norms": [step["grad_norm"] for step in steps],
        "rewards": [step["reward"] for step in steps if "reward" in step],
        "peak_bytes": end["memory"],
        "reserved_bytes": end["reserved"],
    }


def run(root: Path, options: argparse.Namespace) -> None:
    """Run the notebook's code and the script of each job, and keep what was measured after each."""
    import torch

    runs: list[dict[str, Any]] = []
    for job in options.jobs:
        for who in ("notebook", "converted"):
            facts = measured(root / job / who, options.hub.resolve(), options.gpu, options.seconds)
            runs.append({"job": job, "who": who, **facts})
            result = {
                "what": "one process on one GPU, random weights; `notebook` is the notebook's own code, `converted` "
                "what nb2ddp wrote",
                "command": "python -m benchmarks.gpu.pinned run FOLDER --hub HUB --results FILE --gpu 0",
                "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else "none",
                "versions": {name: version(name) for name in PACKAGES.split()},
                "runs": runs,
            }
            options.results.write_text(json.dumps(result, indent=1) + "\n")
            print(job, who, {name: facts.get(name) for name in ("code", "median_step", "peak_bytes")}, flush=True)


def table() -> str:
    """results/pinned.json as a table of Markdown."""
    runs = {(each["job"], each["who"]): each for each in json.loads(RESULTS.read_text(encoding="utf-8"))["runs"]}
    lines = [
        "| training | seconds a step: notebook, script | peak memory, GB | per-device batch x accumulation "
        "| losses differ by at most |",
        "| --- | --- | --- | --- | --- |",
    ]
    for job, (title, _, _) in JOBS.items():
        if any("losses" not in runs.get((job, who), {}) for who in ("notebook", "converted")):
            continue
        both = [runs[job, who] for who in ("notebook", "converted")]
        apart = max(abs(one - other) for one, other in zip(*(each["losses"] for each in both), strict=True))
        cells = [
            title,
            " -> ".join(f"{each['median_step']:.2f}" for each in both),
            " -> ".join(f"{each['peak_bytes'] / 1e9:.1f}" for each in both),
            " -> ".join(f"{each['per_device']} x {each['accumulation']}" for each in both),
            "sampled" if both[0]["rewards"] else f"{apart:.0e}",
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu.pinned", description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=["write", "run"])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--hub", type=Path)
    parser.add_argument("--results", type=Path)
    parser.add_argument("--gpu", default="0")
    parser.add_argument("--jobs", nargs="+", choices=JOBS, default=list(JOBS))
    parser.add_argument("--seconds", type=float, default=180)
    options = parser.parse_args()
    if options.what == "write":
        write(options.folder)
    else:
        run(options.folder.resolve(), options)


if __name__ == "__main__":
    main()
