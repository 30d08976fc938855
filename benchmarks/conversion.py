"""Measure the converter's own speed, compared with the parser's.

    python -m benchmarks.conversion FOLDER

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


def fastest(work: Callable[[], object], rounds: int) -> float:
    """Return the fewest processor seconds that some work took."""
    times = []
    for _ in range(rounds):
        start = time.process_time()
        work()
        times.append(time.process_time() - start)
    return min(times)


def against_the_parser(folder: Path, rounds: int) -> dict[str, float]:
    """Return the time of a conversion, also as a multiple of the time of `libcst.parse_module` for the same code."""
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


def main() -> None:
    """Measure everything and print it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="notebooks")
    given = parser.parse_args()
    print(json.dumps(against_the_parser(given.folder, 3), indent=1))


if __name__ == "__main__":
    main()
