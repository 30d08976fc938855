"""Draw docs/figures/splits.png from the results: `python -m benchmarks.gpu.figures`; needs matplotlib."""

from __future__ import annotations

import matplotlib as mpl
from matplotlib import pyplot as plt
from matplotlib.figure import Figure

from benchmarks.gpu.report import ROOT, beside

FILE = ROOT / "docs" / "figures" / "splits.png"
mpl.rcParams |= {"font.size": 10, "axes.spines.top": False, "axes.spines.right": False}


def splits() -> Figure:
    """Seconds a step with the notebook's settings and with the script's, on machines H, I and J."""
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


if __name__ == "__main__":
    splits().savefig(FILE, dpi=150, metadata={"Software": None})
