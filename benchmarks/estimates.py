"""Measured peaks of memory beside what `nb2ddp estimate` says: `python -m benchmarks.estimates [--plot FILE]`."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from nb2ddp.estimate.memory import need
from nb2ddp.estimate.shapes import from_config
from nb2ddp.estimate.trainings import Training

RESULTS = Path(__file__).parent / "results"
_PAIRS = ("dpo", "orpo", "embeddings")
_KINDS = {"sft": "SFT", "dpo": "DPO", "orpo": "ORPO", "grpo": "GRPO", "vision": "vision", "embeddings": "embeddings"}
_RANKS = {"embeddings": 32}


@dataclass(frozen=True)
class Run:
    """One measured training and its estimate, in bytes."""

    kind: str
    model: str
    precision: str
    rows: int
    tokens: str
    gpus: int
    checkpointing: bool
    family: str
    peak: float
    estimate: float
    limit: float = 0.0  #: GB of the GPU whose memory was imitated

    @property
    def ratio(self) -> float:
        """The estimate over the measured peak."""
        return self.estimate / self.peak


def runs() -> Iterator[Run]:
    """Every run of results/estimates.json."""
    for model in json.loads((RESULTS / "estimates.json").read_text(encoding="utf-8"))["models"]:
        for run in model["runs"]:
            if "peak" in run:
                yield _run(model, run)


def limited() -> Iterator[Run]:
    """The largest batches that fit a smaller GPU by the estimate, trained in no more memory than it has."""
    for model in json.loads((RESULTS / "estimates.json").read_text(encoding="utf-8"))["limited"]["models"]:
        for run in model["runs"]:
            yield replace(_run(model, run), limit=model["limit"] + 0.6)


def _run(model: dict[str, Any], run: dict[str, Any]) -> Run:
    kind, shape = model["kind"], from_config(model["config"], "its config.json")
    training = Training(
        trainer="",
        model=model["model"],
        precision=model["precision"],
        rank=0 if model["precision"] == "full" else _RANKS.get(kind, 16),
        trains_embeddings=False,
        per_device=run["rows"],
        split="",
        tokens=int(str(run["tokens"]).rpartition("-")[2]),
        rows_of_one=2 if kind in _PAIRS else 1,
        can_skip=False,
        checkpoints=model["checkpointing"],
        engine=0.0,
    )
    estimate = need(training, shape, checkpointing=model["checkpointing"], processes=model["gpus"]).peak(run["rows"])
    size = model["model"].removeprefix("bench/")
    return Run(
        _KINDS[kind], size, model["precision"], run["rows"], str(run["tokens"]), model["gpus"], model["checkpointing"],
        shape.family, run["peak"], estimate,
    )  # fmt: skip


def table(measured: list[Run]) -> str:
    """The runs as a table of Markdown."""
    lines = [
        "| training | model | rows x tokens | checkpointing | measured, GB | estimate, GB |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for run in sorted(measured, key=lambda each: (each.kind, each.model, each.precision, each.rows)):
        how = f"{run.kind}, {run.precision}" + (f", in {run.limit:.0f} GB" if run.limit else "")
        told = f"{run.estimate / 1e9:.1f} ({run.ratio:.2f}x)"
        on = "on" if run.checkpointing else "off"
        lines.append(f"| {how} | {run.model} | {run.rows} x {run.tokens} | {on} | {run.peak / 1e9:.1f} | {told} |")
    return "\n".join(lines)


def plot(measured: list[Run], file: Path) -> None:
    """Draw each estimate over its measured peak."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(6, 5))
    for kind in dict.fromkeys(run.kind for run in measured):
        of = [run for run in measured if run.kind == kind]
        axes.scatter([run.peak / 1e9 for run in of], [run.estimate / 1e9 for run in of], label=kind)
    low, high = 1, 1.2 * max(run.estimate for run in measured) / 1e9
    axes.plot([low, high], [low, high], color="black", linewidth=1)
    axes.plot([low, high], [1.5 * low, 1.5 * high], color="grey", linewidth=1, linestyle="--")
    axes.set(xscale="log", yscale="log", xlabel="measured peak, GB", ylabel="estimate, GB")
    axes.text(high / 3, high / 3 * 0.82, "equal", fontsize=9)
    axes.text(high / 3, high / 3 * 1.65, "1.5 times too high", fontsize=9, color="grey")
    axes.legend()
    figure.tight_layout()
    figure.savefig(file, dpi=120)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--plot", type=Path)
    options = parser.parse_args()
    measured = list(runs())
    print(table(measured), table(list(limited())), sep="\n\n")
    ratios = sorted(run.ratio for run in measured)
    print(f"\n{len(measured)} runs, estimate {ratios[0]:.2f} to {ratios[-1]:.2f} times the measured peak")
    if options.plot:
        plot(measured, options.plot)


if __name__ == "__main__":
    main()
