"""Print the tables of the results and draw the figure: `python -m benchmarks.gpu.report`.

The tables list the seconds per step of each kind, for each variant that a user may start on one, two and four GPUs, and
how far the losses of two and four GPUs are from those of one. The figure shows the samples per second of the kinds with
rows of mixed length.
"""

from __future__ import annotations

from pathlib import Path

from benchmarks.gpu.kinds import CHOICES, KINDS, Job
from benchmarks.gpu.results import Facts, difference, read, step_time, step_times
from benchmarks.tables import table

RESULTS = Path(__file__).resolve().parents[1] / "results" / "gpu.json"
FIGURE = RESULTS.parents[2] / "docs" / "figures" / "speed.png"
NAMES = {"notebook": "notebook", "converted": "script, the notebook's batch", "script": "script", "by_hand": "by hand"}
Runs = dict[str, Facts]


def good(runs: Runs, job: Job) -> Facts | None:
    """Return the facts of a job if it ended with code 0, or if its time limit ended it after its first steps."""
    run = runs.get(job.key)
    return run if run and (not run["exit_code"] or (run["exit_code"] == 124 and step_times(run))) else None


def samples_a_step(run: Facts, gpus: int) -> int:
    first = run["trainings"][0]
    return int(first["per_device"] * first["accumulation"] * gpus)


def speed(runs: Runs) -> str:
    """Return the seconds per step; in brackets, the speed relative to the notebook, or first variant, on one GPU."""
    rows = []
    for name, kind in KINDS.items():
        base = None
        for variant in dict.fromkeys(variant for variant, _ in kind.runs):
            done = {gpus: good(runs, Job(name, variant, gpus)) for gpus in (1, 2, 4)}
            base = base or done[1]
            if kind.timed and base and any(done.values()):
                rates = {gpus: samples_a_step(run, gpus) / step_time(run) for gpus, run in done.items() if run}
                first = samples_a_step(base, 1) / step_time(base)
                cells = [
                    f"{step_time(run):.2f} ({rates[gpus] / first:.1f})" if run else "" for gpus, run in done.items()
                ]
                rows.append([kind.title, NAMES[variant], *cells])
    return table(["training", "what runs", "one GPU", "two GPUs", "four GPUs"], rows)


def agreement(runs: Runs) -> str:
    """Return the largest difference of a loss between one GPU and two or four."""
    rows = []
    for name, kind in KINDS.items():
        for variant, gpus in kind.runs:
            one, many = good(runs, Job(name, variant, 1)), good(runs, Job(name, variant, gpus))
            if gpus > 1 and one and many:
                same = samples_a_step(one, 1) == samples_a_step(many, gpus)
                why = kind.chance or ("" if same else f"{samples_a_step(many, gpus)} samples a step")
                rows.append([kind.title, NAMES[variant], str(gpus), why or f"{difference(one, many):.1e}"])
    return table(["training", "what runs", "GPUs", "losses differ by at most"], rows)


def draw(runs: Runs, file: Path) -> None:
    """Draw bars of samples per second, by variant and number of GPUs."""
    from matplotlib import pyplot

    figure, places = pyplot.subplots(1, 2, figsize=(9, 3.4))
    for place, name, samples in zip(places, ("mixed_8", "mixed_32"), (8, 32), strict=True):
        done = [(choice, good(runs, Job(name, *choice))) for choice in CHOICES]
        bars = [(choice, samples_a_step(run, choice[1]) / step_time(run)) for choice, run in done if run]
        labels = [f"{NAMES[variant]}, {gpus} GPU{'s' * (gpus > 1)}" for (variant, gpus), _ in bars]
        colours = ["tab:blue" if variant == "script" else "silver" for (variant, _), _ in bars]
        place.bar_label(place.barh(labels, [rate for _, rate in bars], color=colours), fmt="%.1f", padding=2)
        place.invert_yaxis()
        place.set_title(f"{samples} samples a step")
        place.set_xlabel("samples a second")
        place.spines[["top", "right"]].set_visible(False)
    figure.tight_layout()
    figure.savefig(file, dpi=120)


def main() -> None:
    runs = read(RESULTS)
    print(speed(runs), agreement(runs), sep="\n\n")
    draw(runs, FIGURE)


if __name__ == "__main__":
    main()
