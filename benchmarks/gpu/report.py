"""Write the tables of docs/performance.md from the results: `python -m benchmarks.gpu.report [--check]`.

Each table stands between `<!-- NAME -->` and `<!-- end -->`; all else on the page is left alone.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

from benchmarks.gpu.kinds import KINDS
from benchmarks.gpu.results import Facts, difference, outside, read, step_time

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "benchmarks" / "results" / "gpu.json"
PAGE = ROOT / "docs" / "performance.md"
GIB = 2**30
Runs = dict[str, Facts]


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def good(runs: Runs, key: str) -> Facts | None:
    """The run of this key, if it ended with code 0."""
    run = runs.get(key)
    return run if run and not run["exit_code"] else None


def trained(runs: Runs, key: str) -> Facts | None:
    """The run of this key, if its trainings came to their end, whatever came after."""
    run = runs.get(key)
    return run if run and run["trainings"] and all("ended" in training for training in run["trainings"]) else None


def samples_a_step(run: Facts, gpus: int) -> int:
    first = run["trainings"][0]
    return int(first["per_device"] * first["accumulation"] * gpus)


def rate(run: Facts, gpus: int) -> float:
    """Samples a second, in steady training."""
    return samples_a_step(run, gpus) / step_time(run)


def timed(runs: Runs) -> Iterator[str]:
    """The kinds whose runs had their GPUs for themselves."""
    return (name for name, kind in KINDS.items() if kind.timed and good(runs, f"{name}/converted/1"))


def speed(runs: Runs) -> str:
    rows = []
    for name in timed(runs):
        one = runs[f"{name}/converted/1"]
        own = good(runs, f"{name}/notebook/1")
        row = [KINDS[name].title, str(samples_a_step(one, 1)), f"{step_time(own):.3f}" if own else ""]
        row.append(f"{step_time(one):.3f}")
        for gpus in (2, 4):
            many = good(runs, f"{name}/converted/{gpus}")
            row.append(f"{step_time(many):.3f} ({step_time(one) / step_time(many):.2f}x)" if many else "")
        rows.append(row)
    return table(["kind", "samples a step", "(a) notebook, 1 GPU", "(d) 1 GPU", "(d) 2 GPUs", "(d) 4 GPUs"], rows)


def rivals(runs: Runs) -> str:
    rows = []
    for name in timed(runs):
        ours = good(runs, f"{name}/converted/4")
        if not ours:
            continue
        row = [KINDS[name].title, f"{rate(ours, 4):.1f}"]
        for variant in ("handwritten", "exported_equal", "exported"):
            other = trained(runs, f"{name}/{variant}/4")
            if other is None:
                row.append("")
                continue
            notes = [f"{rate(ours, 4) / rate(other, 4):.2f}x"]
            if samples_a_step(other, 4) != samples_a_step(ours, 4):
                notes.append(f"{samples_a_step(other, 4)} a step")
            if other["exit_code"]:
                notes.append(f"ended with code {other['exit_code']}")
            row.append(f"{rate(other, 4):.1f} ({', '.join(notes)})")
        if len("".join(row[2:])):
            rows.append(row)
    return table(["kind", "(d) converted", "(c) by hand", "(b') exported, same batch", "(b) exported, as it is"], rows)


def norms(run: Facts) -> list[float]:
    return [step["grad_norm"] for training in run["trainings"] for step in training["steps"] if "grad_norm" in step]


def agreement(runs: Runs) -> str:
    rows = []
    for name, kind in KINDS.items():
        one = good(runs, f"{name}/converted/1")
        for gpus in (2, 4):
            many = good(runs, f"{name}/converted/{gpus}")
            if not one or not many:
                continue
            why = kind.chance
            if samples_a_step(one, 1) != samples_a_step(many, gpus):
                why = f"{samples_a_step(many, gpus)} samples a step, not {samples_a_step(one, 1)}"
            drift = max(abs(a - b) / a for a, b in zip(norms(one), norms(many), strict=True) if a)
            ends = list(zip(one["trainings"], many["trainings"], strict=True))
            rows.append(
                [
                    kind.title,
                    str(gpus),
                    str(sum(len(training["steps"]) for training in many["trainings"])),
                    why or f"{difference(one, many):.1e}",
                    "" if why else f"{drift:.1e}",
                    "yes" if all(len(set(b["weights"])) == 1 for _, b in ends) else "NO",
                    "" if why else "yes" if all(a["which"] == b["which"] for a, b in ends) else "NO",
                    "" if why else str(sum(b["rows"] - a["rows"] for a, b in ends)),
                ]
            )
    head = ["kind", "GPUs", "steps", "loss, at most", "gradient norm, relative, at most"]
    return table([*head, "ranks hold equal weights", "same rows as on one GPU", "rows repeated"], rows)


def endings(runs: Runs) -> str:
    """Every converted run: its code, what it left, and its time outside training."""
    rows = []
    for name, kind in KINDS.items():
        one = good(runs, f"{name}/converted/1")
        for gpus in (1, 2, 4):
            run = runs.get(f"{name}/converted/{gpus}")
            if run is None:
                continue
            alone = kind.timed and one and not run["exit_code"]
            share = f"{outside(run):.0f} s ({outside(run) / outside(one):.2f}x)" if alone and one else ""
            peak = max((max(training.get("memory", [0])) for training in run["trainings"]), default=0)
            rows.append(
                [
                    kind.title,
                    str(gpus),
                    str(run["exit_code"]),
                    f"{run['seconds']:.0f} s",
                    share,
                    str(len(run["left_running"])),
                    str(len(run["written_by_several"])),
                    f"{peak / GIB:.1f}",
                ]
            )
    head = ["kind", "GPUs", "exit code", "launch to end", "outside training", "processes left"]
    return table([*head, "files written by several ranks", "peak GiB a GPU"], rows)


TABLES: dict[str, Callable[[Runs], str]] = {
    "speed": speed,
    "rivals": rivals,
    "agreement": agreement,
    "endings": endings,
}


def fill(page: str, runs: Runs) -> str:
    """The page with its tables made anew.

    Raises:
        ValueError: the page has no place for a table.
    """
    for name, make in TABLES.items():
        before, found, rest = page.partition(f"<!-- {name} -->\n")
        _, end, after = rest.partition("<!-- end -->")
        if not found or not end:
            raise ValueError(f"the page has no place for the table {name}")
        page = f"{before}{found}{make(runs)}\n{end}{after}"
    return page


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu.report", description="Write the tables.")
    parser.add_argument("--check", action="store_true", help="write nothing; exit with 1 where a table is stale")
    options = parser.parse_args()
    before = PAGE.read_text()
    after = fill(before, read(RESULTS))
    if not options.check:
        PAGE.write_text(after)
    elif before != after:
        print(f"{PAGE.name} is stale: python -m benchmarks.gpu.report")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
