"""The results file, and what can be read from it."""

from __future__ import annotations

import itertools
import json
import subprocess
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from statistics import median
from typing import Any

Facts = dict[str, Any]
PACKAGES = ("torch", "unsloth", "unsloth_zoo", "transformers", "trl", "accelerate", "peft", "bitsandbytes", "datasets")
WARM_UP = 5  # steps that a steady speed leaves out, because kernels are compiled and chosen in them


def read(file: Path) -> dict[str, Facts]:
    """Return every run of a results file by its key, or none if there is no file."""
    return dict(json.loads(file.read_text())["runs"]) if file.exists() else {}


def add(file: Path, key: str, facts: Facts) -> None:
    """Put a run into a results file, whole or not at all."""
    runs = {**read(file), key: {"gpu": gpu_name(), "versions": versions(), **facts}}
    new = file.with_suffix(".new")
    file.parent.mkdir(parents=True, exist_ok=True)
    new.write_text(json.dumps({"runs": dict(sorted(runs.items()))}, indent=1) + "\n")
    new.replace(file)


def versions() -> dict[str, str]:
    found = {}
    for name in PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def gpu_name() -> str:
    """Return the first GPU's name, as its driver reports it."""
    query = ["nvidia-smi", "--query-gpu=name", "--format=csv,noheader", "--id=0"]
    try:
        return subprocess.run(query, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return "none"


def losses(facts: Facts) -> list[list[float]]:
    """Return the logged losses of each training."""
    return [[step["loss"] for step in training["steps"]] for training in facts["trainings"]]


def durations(training: Facts) -> list[float]:
    """Return the seconds of each step of a training, from the second on: a step is logged when it ends."""
    at = [step["at"] for step in training["steps"]]
    return [later - earlier for earlier, later in itertools.pairwise(at)]


def step_times(facts: Facts) -> list[float]:
    """Return the seconds of each step of the first training, without its first steps."""
    return durations(facts["trainings"][0])[WARM_UP - 1 :]


def step_time(facts: Facts) -> float:
    """Return the median of `step_times`."""
    return median(step_times(facts))


def difference(one: Facts, other: Facts) -> float:
    """Return the largest difference between the losses of two runs, at the same step of the same training."""
    pairs = zip(losses(one), losses(other), strict=True)
    return max(abs(a - b) for first, second in pairs for a, b in zip(first, second, strict=False))


def summary(facts: Facts) -> str:
    """Return the first and last loss of each training, or the end of the output of a run that failed."""
    if facts["exit_code"]:
        return str(facts["said"])[-1500:]
    return "; ".join(f"loss {each[0]:.4f} to {each[-1]:.4f}" for each in losses(facts) if each)
