"""Time nb2ddp on a folder of notebooks beside jupytext, which dumps them without rewriting anything.

    python benchmarks/batch.py FOLDER [--rounds 3] [--only corpus|notebooks|cells]

Both run on the same files and cores, in turns; the figures are the fastest of the rounds, in seconds, with the peak
memory of the largest process in MiB. Also shows how time grows with the number of notebooks, and with the number of
cells of one notebook.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).parent.parent


def run(command: list[str], folder: Path) -> float:
    """Run a command that may find fault with notebooks, and say how long it took."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "NB2DDP_CACHE_DIR": str(folder / "cache")}
    start = time.perf_counter()
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    took = time.perf_counter() - start
    if done.returncode not in (0, 1, 2) or "Traceback" in done.stderr:
        sys.exit(f"{command[:4]} failed:\n{done.stderr}")
    return took


def nb2ddp(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "nb2ddp", "nb", "--output-dir", "out", "--quiet", *arguments]


def jupytext(folder: Path) -> list[str]:
    names = sorted(path.relative_to(folder).as_posix() for path in (folder / "nb").rglob("*.ipynb"))
    code = "import sys; from jupytext.cli import jupytext; sys.exit(jupytext(sys.argv[1:]))"
    return [sys.executable, "-c", code, "--quiet", "--to", "py:percent", *names]


def cold(folder: Path) -> None:
    """Forget what was converted and written."""
    for name in ("cache", "out"):
        shutil.rmtree(folder / name, ignore_errors=True)


def corpus(source: Path, rounds: int) -> None:
    """The whole folder: jupytext, nb2ddp for the first time, and again."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        shutil.copytree(source, folder / "nb", ignore=lambda _, names: [n for n in names if not n.endswith(".ipynb")])
        count = len(list((folder / "nb").rglob("*.ipynb")))
        times: dict[str, list[float]] = {"jupytext": [], "first run": [], "one process": [], "second run": []}
        for _ in range(rounds):
            times["jupytext"].append(run(jupytext(folder), folder))
            cold(folder)
            times["one process"].append(run(nb2ddp("--jobs", "1"), folder))
            cold(folder)
            times["first run"].append(run(nb2ddp(), folder))
            times["second run"].append(run(nb2ddp(), folder))
        base = min(times["jupytext"])
        print(f"{count} notebooks, {os.cpu_count()} cores")
        for title, found in times.items():
            print(f"  {title:12} {min(found):6.2f} s   {min(found) / base:5.2f} times jupytext")
        print(f"  peak memory  {resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss // 1024} MiB")


def growth(title: str, sizes: list[int], make: Callable[[Path, int], None]) -> None:
    """One process, no cache, for each size."""
    print(title)
    for size in sizes:
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            (folder / "nb").mkdir()
            make(folder / "nb", size)
            took = run(nb2ddp("--jobs", "1", "--no-cache"), folder)
            print(f"  {size:5} {took:7.2f} s   {1000 * took / size:6.2f} ms each")


def main() -> None:
    """Measure what was asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", choices=["corpus", "notebooks", "cells"])
    arguments = parser.parse_args()
    first = sorted(arguments.folder.rglob("*.ipynb"), key=lambda path: path.stat().st_size)
    middle = json.loads(first[len(first) // 2].read_text(encoding="utf-8"))

    def notebooks(folder: Path, size: int) -> None:
        for number in range(size):
            (folder / f"{number}.ipynb").write_text(json.dumps(middle), encoding="utf-8")

    def cells(folder: Path, size: int) -> None:
        code = [cell for cell in middle["cells"] if cell["cell_type"] == "code"]
        plain = {**code[0], "outputs": [], "source": "value = [number * 2 for number in range(10)]\nprint(value)"}
        grown = {**middle, "cells": [*middle["cells"], *[plain] * (size - len(middle["cells"]))]}
        (folder / "grown.ipynb").write_text(json.dumps(grown), encoding="utf-8")

    if arguments.only in (None, "corpus"):
        corpus(arguments.folder, arguments.rounds)
    if arguments.only in (None, "notebooks"):
        growth("notebooks", [10, 20, 40, 80], notebooks)
    if arguments.only in (None, "cells"):
        growth("cells of one notebook", [100, 500, 1000, 2500, 5000], cells)


if __name__ == "__main__":
    main()
