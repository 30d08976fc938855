"""Measure the converter itself: its speed against the parser's, and how it grows.

    python -m benchmarks.conversion FOLDER [--rounds 3]

Times are processor seconds of one process, the fastest of the rounds.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import libcst as cst

from nb2ddp.convert import convert_source
from nb2ddp.facts.program import Program
from nb2ddp.notebook.ipynb import parse_notebook
from nb2ddp.options import Options
from nb2ddp.results import NotebookError

#: What a grown notebook's cells hold, besides a trainer.
CELLS = {
    "writing": 'with open("rows_{n}.txt", "w") as f:\n    f.write(str({n}))',
    "functions": "def prepare_{n}(rows):\n    return [row * {n} for row in rows]\nrows_{n} = prepare_{n}([1, 2])",
    "magics": "%env VARIABLE_{n} = {n}\n!wget https://example.org/{n} -O {n}.txt",
}
TRAINING = (
    "from trl import SFTConfig, SFTTrainer\ntrainer = SFTTrainer(model = model, args = SFTConfig())\ntrainer.train()"
)


def fastest(work: Callable[[], object], rounds: int) -> float:
    """The fewest processor seconds that some work took."""
    times = []
    for _ in range(rounds):
        start = time.process_time()
        work()
        times.append(time.process_time() - start)
    return min(times)


def against_the_parser(folder: Path, rounds: int) -> dict[str, float]:
    """How long a conversion takes, as a multiple of what `libcst.parse_module` takes for the same code."""
    ratios, seconds = [], []
    for path in sorted(folder.glob("*.ipynb")):
        text = path.read_text(encoding="utf-8")
        try:
            source = Program(parse_notebook(text, path.stem), Options()).tree.source
            convert_source(text, path.stem)
        except NotebookError:
            continue
        converted = fastest(lambda text=text, path=path: convert_source(text, path.stem), rounds)  # type: ignore[misc]
        parsed = fastest(lambda source=source: cst.parse_module(source), rounds)  # type: ignore[misc]
        ratios.append(converted / parsed)
        seconds.append(converted)
    return {
        "notebooks": len(ratios),
        "median_times_the_parser": round(statistics.median(ratios), 2),
        "median_milliseconds": round(1000 * statistics.median(seconds), 1),
    }


def grown(cell: str, size: int) -> str:
    """A notebook of so many cells of a kind, with a training at its end."""
    sources = [*(cell.replace("{n}", str(n)) for n in range(size - 1)), TRAINING]
    cells: list[dict[str, object]] = [
        {"cell_type": "code", "metadata": {}, "outputs": [], "execution_count": None, "source": source}
        for source in sources
    ]
    return json.dumps({"nbformat": 4, "nbformat_minor": 4, "metadata": {}, "cells": cells})


def growth(rounds: int) -> dict[str, float]:
    """How much longer 1,000 cells take than 100."""
    found = {}
    for kind, cell in CELLS.items():
        texts = [grown(cell, size) for size in (100, 1000)]
        small, large = (fastest(lambda text=text: convert_source(text), rounds) for text in texts)  # type: ignore[misc]
        found[kind] = round(large / small, 1)
    return found


def main() -> None:
    """Measure everything and print it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="notebooks")
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    found = {
        "parser": against_the_parser(given.folder, given.rounds),
        "cells_1000_over_100": growth(given.rounds),
    }
    print(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
