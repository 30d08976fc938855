"""Print the tables of the results: `python -m benchmarks.gpu.report`.

Seconds a step of each kind, the notebook's own code and the script's on one, two and four GPUs; and how far losses,
gradient norms, weights and rows of two and four GPUs are from those of one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from benchmarks.gpu.kinds import KINDS, Job, Kind
from benchmarks.gpu.results import Facts, difference, read, step_time
from benchmarks.tables import table

RESULTS = Path(__file__).resolve().parents[1] / "results" / "gpu.json"
MACHINES = "ABCD"  # one for each repetition
Runs = dict[str, Facts]


def good(runs: Runs, job: Job) -> Facts | None:
    """What a job did, if it ended with code 0."""
    run = runs.get(job.key)
    return run if run and not run["exit_code"] else None


def samples_a_step(run: Facts, gpus: int) -> int:
    first = run["trainings"][0]
    return int(first["per_device"] * first["accumulation"] * gpus)


def repetitions(kind: Kind) -> range:
    """The repetitions that the tables tell apart: where time counts, all runs of one are of one machine."""
    return range(len(MACHINES) if kind.timed else 1)


def converted(runs: Runs, sizes: Sequence[int]) -> Iterator[tuple[Kind, int, int, Facts | None, Facts]]:
    """Each converted run on one of these numbers of GPUs: its kind, repetition, number, one GPU's good run, and it."""
    for name, kind in KINDS.items():
        for again in repetitions(kind):
            one = good(runs, Job(name, "converted", 1, again))
            for gpus in sizes:
                if run := runs.get(Job(name, "converted", gpus, again).key):
                    yield kind, again, gpus, one, run


def timed(runs: Runs, gpus: int) -> Iterator[tuple[str, int, Facts]]:
    """The converted runs that had so many GPUs for themselves and succeeded: kind, repetition, and the run."""
    for name, kind in KINDS.items():
        for again in repetitions(kind) if kind.timed else ():
            if run := good(runs, Job(name, "converted", gpus, again)):
                yield name, again, run


def speed(runs: Runs) -> str:
    rows = []
    for name, again, one in timed(runs, 1):
        own = good(runs, Job(name, "notebook", 1, again))
        row = [KINDS[name].title, MACHINES[again], str(samples_a_step(one, 1)), f"{step_time(own):.3f}" if own else ""]
        row.append(f"{step_time(one):.3f}")
        for gpus in (2, 4):
            many = good(runs, Job(name, "converted", gpus, again))
            row.append(f"{step_time(many):.3f} ({step_time(one) / step_time(many):.2f}x)" if many else "")
        rows.append(row)
    head = ["kind", "machine", "samples a step", "notebook, 1 GPU", "1 GPU", "2 GPUs", "4 GPUs"]
    return table(head, rows)


def norms(run: Facts) -> list[float]:
    return [step["grad_norm"] for training in run["trainings"] for step in training["steps"] if "grad_norm" in step]


def agreement(runs: Runs) -> str:
    rows = []
    for kind, again, gpus, one, many in converted(runs, (2, 4)):
        if not one or many["exit_code"]:
            continue
        why = kind.chance
        if samples_a_step(one, 1) != samples_a_step(many, gpus):
            why = f"{samples_a_step(many, gpus)} samples a step, not {samples_a_step(one, 1)}"
        drift = max(abs(a - b) / a for a, b in zip(norms(one), norms(many), strict=True) if a)
        ends = list(zip(one["trainings"], many["trainings"], strict=True))
        rows.append(
            [
                kind.title,
                MACHINES[again] if kind.timed else "",
                str(gpus),
                str(sum(len(training["steps"]) for training in many["trainings"])),
                why or f"{difference(one, many):.1e}",
                "" if why else f"{drift:.1e}",
                "yes" if all(len(set(b["weights"])) == 1 for _, b in ends) else "NO",
                "" if why else "yes" if all(a["which"] == b["which"] for a, b in ends) else "NO",
                "" if why else str(sum(b["rows"] - a["rows"] for a, b in ends)),
            ]
        )
    head = ["kind", "machine", "GPUs", "steps", "loss, at most", "gradient norm, relative, at most"]
    return table([*head, "ranks hold equal weights", "same rows as on one GPU", "rows repeated"], rows)


def main() -> None:
    runs = read(RESULTS)
    print(speed(runs), agreement(runs), sep="\n\n")


if __name__ == "__main__":
    main()
