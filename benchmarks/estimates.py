"""Compare measured peaks of memory with `nb2ddp estimate`: `python -m benchmarks.estimates`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from benchmarks.tables import table
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
    limit: float = 0.0  #: GB of the GPU whose memory the run imitated

    @property
    def ratio(self) -> float:
        """The estimate divided by the measured peak."""
        return self.estimate / self.peak


def runs() -> Iterator[Run]:
    """Yield every run in results/estimates.json."""
    for model in json.loads((RESULTS / "estimates.json").read_text(encoding="utf-8"))["models"]:
        for run in model["runs"]:
            if "peak" in run:
                yield _run(model, run)


def limited() -> Iterator[Run]:
    """Yield the largest batches that fit a smaller GPU by the estimate, trained in no more memory than it has."""
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


def text(measured: list[Run]) -> str:
    """Return the runs as a Markdown table."""
    rows = []
    for run in sorted(measured, key=lambda each: (each.kind, each.model, each.precision, each.rows)):
        how = f"{run.kind}, {run.precision}" + (f", in {run.limit:.0f} GB" if run.limit else "")
        estimate = f"{run.estimate / 1e9:.1f} ({run.ratio:.2f}x)"
        on = "on" if run.checkpointing else "off"
        rows.append([how, run.model, f"{run.rows} x {run.tokens}", on, f"{run.peak / 1e9:.1f}", estimate])
    head = ["training", "model", "rows x tokens", "checkpointing", "measured, GB", "estimate, GB"]
    return table(head, rows)


def main() -> None:
    measured = list(runs())
    print(text(measured), text(list(limited())), sep="\n\n")
    ratios = sorted(run.ratio for run in measured)
    print(f"\n{len(measured)} runs, estimate {ratios[0]:.2f} to {ratios[-1]:.2f} times the measured peak")


if __name__ == "__main__":
    main()
