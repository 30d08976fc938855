"""Print tables of benchmarks/results/grpo.json: `python -m benchmarks.grpo_tables [TABLE ...]`; --help lists them."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.gpu.report import table
from benchmarks.grpo_replay import apart

RESULTS: dict[str, Any] = json.loads(
    (Path(__file__).parent / "results" / "grpo.json").read_text(encoding="utf-8"),
)


def jobs() -> str:
    """Every training: its processes, exit code, seconds, and the processes that it left."""
    head = ["script", "processes", "exit code", "seconds", "processes left"]
    rows = []
    for job, run in RESULTS["jobs"].items():
        name, _, processes = job.partition("/")
        rows.append([name, processes, str(run["code"]), f"{run['seconds']:.0f}", str(len(run["left"]))])
    return table(head, rows)


def sizes() -> str:
    """Seconds of a step by model, completions and GPUs: the median of all steps but the first two, and their range."""
    rows = []
    for job, run in RESULTS["sizes"].items():
        name, _, gpus = job.removeprefix("sizes-").partition("/")
        for training in (training for training in run["ranks"][0] if training["parts"]):
            completions = int(gpus) * training["batch"][0] * training["batch"][1]
            steps = training["parts"][2:]
            whole = [step["whole"] for step in steps]
            parts = [f"{median(step[part] for step in steps):.2f}" for part in ("generating", "training_step")]
            rows.append(
                [name, str(completions), gpus, f"{median(whole):.2f}", f"{min(whole):.2f} to {max(whole):.2f}", *parts]
            )
    rows.sort(key=lambda row: (row[0], int(row[1]), row[2]))
    return table(["model", "completions", "GPUs", "seconds a step", "range", "generating", "training step"], rows)


def tokens() -> str:
    """Seconds that an engine alone takes for a token, and for how many of them the GPU computes."""
    rows = [
        [model, *(f"{each.get(key, '')}" for key in ("completions", "seconds", "computing")), _setting(each)]
        for model, found in RESULTS["tokens"].items()
        for each in found
    ]
    return table(["model", "completions at once", "seconds a token", "GPU computes", "setting"], rows)


def _setting(run: dict[str, Any]) -> str:
    """What a run of an engine alone changed, or nothing."""
    return ", ".join(
        f"{key} {value}" for key, value in run.items() if key not in ("completions", "seconds", "computing")
    )


def replay() -> str:
    """The largest differences between one process and several that get the same completions."""
    rows = []
    for library, runs in RESULTS["replay"].items():
        for processes in sorted(set(runs["commands"]) - {"1"}):
            for case, figures in apart(runs["1"], runs[processes]).items():
                rows.append([library, processes, case, *(f"{value:.0e}" for value in figures.values())])
    head = ["library", "processes", "case", "loss", "gradient norm", "reward", "reward's spread", "advantages"]
    return table(head, rows)


def memory() -> str:
    """GiB that a process has taken on its GPU while generating and while learning, and seconds of a step."""
    rows = []
    for job, run in RESULTS["memory"].items():
        step = run["steps"][-1]
        used = (f"{step[f'mib_{when}'] / 1024:.1f}" for when in ("generating", "learning"))
        rows.append([job.partition("/")[0], *used, f"{step['seconds']:.2f}"])
    return table(["script", "GiB while generating", "GiB while learning", "seconds a step"], rows)


def starts() -> str:
    """Starts that fail: the exit code, the seconds until then, and what is printed."""
    rows = [
        [job.partition("/")[0], str(run.get("code", "")), f"{run.get('seconds', '')}", "; ".join(run["said"])]
        for job, run in RESULTS["starts"].items()
    ]
    return table(["start", "exit code", "seconds", "printed"], rows)


def server() -> str:
    """How far a vLLM server's log-probabilities are from the trained model's, with its adapter and without."""
    rows = [
        [job.partition("/")[0], str(run["code"]), *(f"{value:.3f}" for value in run.get("served", {}).values())]
        for job, run in RESULTS["server"].items()
    ]
    return table(["script", "exit code", "with the adapter", "without"], [row + [""] * (4 - len(row)) for row in rows])


def once_more() -> str:
    """Other kinds of training on two GPUs: the largest differences from one GPU."""
    rows = []
    for name in sorted({job.partition("/")[0] for job in RESULTS["once_more"]}):
        one, two = (RESULTS["once_more"].get(f"{name}/{processes}") for processes in "12")
        if one and two:
            steps = list(zip(one["ranks"][0][0]["steps"], two["ranks"][0][0]["steps"], strict=True))
            loss = max(abs(a["loss"] - b["loss"]) for a, b in steps)
            norm = max(abs(a["grad_norm"] - b["grad_norm"]) / a["grad_norm"] for a, b in steps)
            rows.append([name, str(len(steps)), f"{loss:.1e}", f"{norm:.1e}"])
    return table(["script", "steps", "loss", "gradient norm, relative"], rows)


TABLES = {each.__name__: each for each in (jobs, sizes, tokens, replay, memory, starts, server, once_more)}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.grpo_tables", description="Print tables of grpo.json.")
    parser.add_argument("tables", nargs="*", choices=[[], *TABLES], help="all, unless some are named")
    for name in parser.parse_args().tables or TABLES:
        print(f"{TABLES[name].__doc__}\n\n{TABLES[name]()}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
