"""Draw the results as docs/figures/*.png and *.svg: `python -m benchmarks.gpu.figures`; needs matplotlib."""

from __future__ import annotations

from pathlib import Path

import matplotlib as mpl
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from benchmarks.gpu.kinds import KINDS, Job
from benchmarks.gpu.report import GIB, MACHINES, RESULTS, ROOT, Runs, beside, good, rate, timed, trained
from benchmarks.gpu.results import read

FOLDER = ROOT / "docs" / "figures"
GPUS = (1, 2, 4)
RIVALS = {"handwritten": ("s", "transformers + PEFT + TRL by hand"), "exported_equal": ("x", "exported, same batch")}
mpl.rcParams |= {"svg.hashsalt": "nb2ddp", "font.size": 10, "axes.spines.top": False, "axes.spines.right": False}


def save(figure: Figure, name: str) -> None:
    """Write a figure as PNG and SVG, the same bytes each time."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    figure.savefig(FOLDER / f"{name}.png", dpi=150, metadata={"Software": None})
    figure.savefig(FOLDER / f"{name}.svg", metadata={"Date": None, "Creator": None})
    plt.close(figure)


def first(runs: Runs) -> list[str]:
    """The kinds that were timed on the first machine."""
    return [name for name, again, _ in timed(runs, 1) if not again]


def throughput(runs: Runs) -> Figure:
    """Samples a second of the 4-bit SFT kinds against GPUs, with the ideal line; on 4 GPUs the rivals too."""
    names = [name for name in first(runs) if name.startswith("sft_") and good(runs, Job(name, "converted", 4))]
    figure: Figure
    figure, panels = plt.subplots(1, len(names), figsize=(4.5 * len(names), 4), layout="constrained", squeeze=False)
    for name, ax in zip(names, panels.flat, strict=True):
        found = {gpus: run for gpus in GPUS if (run := good(runs, Job(name, "converted", gpus)))}
        rates = [rate(run, gpus) for gpus, run in found.items()]
        ax.plot(list(found), [rates[0] * gpus for gpus in found], "--", color="0.6", label="ideal")
        ax.plot(list(found), rates, "o-", color="#0072b2", label="converted by nb2ddp")
        for variant, (marker, label) in RIVALS.items():
            if run := trained(runs, Job(name, variant, 4)):
                ax.plot([4], [rate(run, 4)], marker, color="0.25", label=label)
        for gpus, value in zip(found, rates, strict=True):
            ax.annotate(f"{value / rates[0]:.2f}x", (gpus, value), (0, -16), textcoords="offset points")
        ax.set(title=KINDS[name].title, xlabel="GPUs (H200)", ylabel="samples a second", xticks=list(found))
        ax.set_ylim(bottom=0)
        ax.legend(frameon=False, fontsize=8)
    return figure


def whole(runs: Runs, name: str) -> int:
    """The first repetition of a kind that ran on every number of GPUs; the first one where none did."""
    found = (again for again in range(len(MACHINES)) if all(good(runs, Job(name, "converted", n, again)) for n in GPUS))
    return next(found, 0)


def draw_losses(ax: Axes, runs: Runs, name: str) -> None:
    again = whole(runs, name)
    for gpus, style in zip(GPUS, ("-", "--", ":"), strict=True):
        if run := good(runs, Job(name, "converted", gpus, again)):
            steps = [step for training in run["trainings"] for step in training["steps"]]
            width = {1: 3.0, 2: 2.0, 4: 2.0}[gpus]
            curve = [step["loss"] for step in steps]
            ax.plot(range(1, len(curve) + 1), curve, style, lw=width, alpha=0.8, label=f"{gpus} GPU{'s' * (gpus > 1)}")
    ax.set_title(KINDS[name].title, fontsize=8)
    ax.tick_params(labelsize=7)


def losses(runs: Runs) -> Figure:
    """The losses of each kind on 1, 2 and 4 GPUs, laid over each other."""
    names = [name for name, kind in KINDS.items() if not kind.chance and good(runs, Job(name, "converted", 2))]
    columns = 3
    figure: Figure
    figure, axes = plt.subplots(-(-len(names) // columns), columns, figsize=(11, 11), layout="constrained")
    for ax in axes.flat[len(names) :]:
        ax.set_axis_off()
    for ax, name in zip(axes.flat, names, strict=False):
        draw_losses(ax, runs, name)
    axes.flat[0].legend(frameon=False, fontsize=7)
    figure.supxlabel("step")
    figure.supylabel("loss")
    return figure


def peak(runs: Runs, job: Job) -> float:
    """The most memory that a process allocated on its GPU, in GiB; 0 where the run is missing."""
    run = good(runs, job)
    return max(memory for training in run["trainings"] for memory in training["memory"]) / GIB if run else 0.0


def memory(runs: Runs) -> Figure:
    """The peak memory of a GPU, for each kind and number of GPUs."""
    names = first(runs)
    bars = {("converted", 1): "1 GPU", ("converted", 2): "2 GPUs", ("converted", 4): "4 GPUs"}
    bars[("handwritten", 4)] = "4 GPUs, by hand"
    figure: Figure
    figure, ax = plt.subplots(figsize=(9, 0.7 * len(names) + 1), layout="constrained")
    for place, ((variant, gpus), label) in enumerate(bars.items()):
        found = [(i, height) for i, name in enumerate(names) if (height := peak(runs, Job(name, variant, gpus)))]
        if found:
            ax.barh([i + 0.2 * place for i, _ in found], [height for _, height in found], 0.19, label=label)
    ax.set_yticks([i + 0.2 for i in range(len(names))], [KINDS[name].title for name in names])
    ax.invert_yaxis()
    ax.set_xlabel("GiB on a GPU, at most")
    ax.legend(frameon=False)
    return figure


def splits(_: Runs) -> Figure:
    """Seconds a step as the notebook has it and as a script chooses, on machines H, I and J."""
    chosen = {
        ("8 a step", "H"): "3.2B, 8 rows of 450 tokens",
        ("sft_8b", "I"): "8.0B, 8 rows of 2,048 tokens",
        ("sft_8b", "J"): "8.0B, on 80 GB",
    }
    labels = {"notebook": "as the notebook has it", "gpu": "as a script chooses", "hand": "by hand, its best"}
    found: dict[tuple[str, str, str, int], float] = {}
    for run in beside():
        key = (run["base"], run["machine"], run["split"], run["gpus"])
        if not run["exit_code"] and run.get("checkpointing") != "kept" and "padded" not in run["name"]:
            found[key] = min(run["median"], found.get(key, run["median"]))
    figure: Figure
    figure, panels = plt.subplots(1, len(chosen), figsize=(10, 3.6), width_ratios=(3, 3, 2), layout="constrained")
    for ax, ((base, machine), title) in zip(panels, chosen.items(), strict=True):
        for place, (split, label) in enumerate(labels.items()):
            heights = [(n, seconds) for n in (1, 2) if (seconds := found.get((base, machine, split, n)))]
            if heights:
                bars = ax.bar([gpus + 0.26 * (place - 1) for gpus, _ in heights], [h for _, h in heights], 0.25)
                bars.set_label(label)
                ax.bar_label(bars, [f"{found[base, machine, 'notebook', 1] / h:.2f}x" for _, h in heights], fontsize=8)
        ax.set(
            title=f"{title} ({machine})",
            xlabel="GPUs",
            ylabel="seconds a step",
            xticks=(1,) if machine == "J" else (1, 2),
        )
    panels[0].legend(frameon=False, fontsize=8)
    return figure


def main(results: Path = RESULTS) -> None:
    runs = read(results)
    for name, draw in {"throughput": throughput, "losses": losses, "memory": memory, "splits": splits}.items():
        save(draw(runs), name)


if __name__ == "__main__":
    main()
