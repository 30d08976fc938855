"""Measure the converter itself: its speed against the parser's, how it grows, its command, its size.

    python -m benchmarks.conversion FOLDER [--out benchmarks/results/conversion.json]

Times are processor seconds of one process, the fastest of the rounds; the command is timed by the wall, in turns with
`jupyter nbconvert --to script` on the same notebook.
"""

from __future__ import annotations

import argparse
import ast
import io
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import tokenize
from collections.abc import Callable
from pathlib import Path

import libcst as cst

from nb2ddp.convert import convert_source
from nb2ddp.facts.program import Program
from nb2ddp.notebook.ipynb import parse_notebook
from nb2ddp.options import Options
from nb2ddp.results import NotebookError

PACKAGE = Path(__file__).parent.parent / "nb2ddp"
#: Modules that serve one purpose beside converting a notebook of Colab's to a script and its launch files.
PURPOSES = {
    "rehearsing a script": ("rehearsal/", "cli/rehearse.py"),
    "other notebooks, other places, a page to look at": (
        *(
            "notebook/marimo.py",
            "notebook/python.py",
            "notebook/scripts.py",
            "project/links.py",
        ),
        *("script/hosted.py", "script/looking_back.py", "rules/marimo.py", "cli/page.py"),
    ),
    "a person's edits, the next step": (
        *("project/merge.py", "project/history.py", "script/stamp.py", "cli/steps.py", "cli/explain.py"),
        *("project/changes.py", "cli/summary.py"),
    ),
    "what trainers call in GRPO": (
        *("facts/rewards.py", "rules/reward_draws.py", "rules/reward_state.py", "rules/vllm_server.py"),
    ),
    "the same in every process": (
        *("facts/drawn.py", "facts/services.py", "rules/own_answers.py", "rules/resumed_training.py", "rules/stop.py"),
    ),
    "the split for the GPU at hand": ("facts/gpu.py", "facts/micro_batch.py", "rules/checkpointing.py"),
}
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


def command(notebook: Path, rounds: int) -> dict[str, float]:
    """Wall seconds of `nb2ddp notebook.ipynb train.py` and of `jupyter nbconvert --to script`, medians."""
    times: dict[str, list[float]] = {"nb2ddp": [], "nbconvert": []}
    for _ in range(rounds):
        with tempfile.TemporaryDirectory() as name:
            shutil.copy(notebook, Path(name) / "a.ipynb")
            environment = {**os.environ, "NB2DDP_CACHE_DIR": f"{name}/cache", "PYTHONPATH": str(PACKAGE.parent)}
            for title, words in (
                ("nb2ddp", ["nb2ddp", "a.ipynb", "train.py", "--quiet"]),
                ("nbconvert", ["nbconvert", "--to", "script", "a.ipynb"]),
            ):
                start = time.perf_counter()
                line = [sys.executable, "-m", *words]
                subprocess.run(line, cwd=name, env=environment, capture_output=True, check=True)
                times[title].append(time.perf_counter() - start)
    return {title: round(statistics.median(found), 2) for title, found in times.items()}


def code_lines(path: Path) -> int:
    """Lines of code of a module: without docstrings, comments, blank lines and rule examples."""
    text = path.read_text(encoding="utf-8")
    lines = set()
    skipped = (tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER)
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in skipped:
            lines |= set(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            lines -= _span(node.body[0]) if ast.get_docstring(node) is not None else set()
        elif isinstance(node, ast.keyword) and node.arg == "examples":
            lines -= _span(node.value)
    return len(lines)


def _span(node: ast.stmt | ast.expr) -> set[int]:
    return set(range(node.lineno, (node.end_lineno or node.lineno) + 1))


def long_functions(path: Path, limit: int = 40) -> list[str]:
    """The functions of a module that are longer than this many lines, without their docstrings."""
    found = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            docstring = node.body[0] if ast.get_docstring(node) is not None else None
            length = len(_span_of(node)) - (len(_span(docstring)) if docstring is not None else 0)
            if length > limit:
                found.append(f"{path.relative_to(PACKAGE)}:{node.name} ({length})")
    return found


def _span_of(node: ast.FunctionDef | ast.AsyncFunctionDef) -> range:
    return range(node.lineno, (node.end_lineno or node.lineno) + 1)


def size() -> dict[str, object]:
    """Lines of code by room and by purpose, and functions that are too long."""
    modules = sorted(PACKAGE.rglob("*.py"))
    rooms: dict[str, int] = {}
    purposes = {"converting": 0, **dict.fromkeys(PURPOSES, 0)}
    for path in modules:
        place = path.relative_to(PACKAGE).as_posix()
        room = place.split("/")[0].removesuffix(".py")
        rooms[room] = rooms.get(room, 0) + code_lines(path)
        purpose = next((name for name, places in PURPOSES.items() if place.startswith(places)), "converting")
        purposes[purpose] += code_lines(path)
    too_long = [name for path in modules for name in long_functions(path)]
    return {
        "total": sum(rooms.values()),
        "rooms": rooms,
        "purposes": purposes,
        "functions_above_40_lines": too_long,
    }


def main() -> None:
    """Measure everything and print it, or write it down."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, nargs="?", help="notebooks; none measures the size alone")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    found: dict[str, object] = {"size": size()}
    if arguments.folder is not None:
        found["parser"] = against_the_parser(arguments.folder, arguments.rounds)
        found["cells_1000_over_100"] = growth(arguments.rounds)
        first = sorted(arguments.folder.glob("*.ipynb"), key=lambda path: path.stat().st_size)
        found["command_seconds"] = command(first[len(first) // 2], arguments.rounds)
        found["made_by"] = "python -m benchmarks.conversion FOLDER"
    text = json.dumps(found, indent=1) + "\n"
    if arguments.out is not None:
        arguments.out.write_text(text, encoding="utf-8")
    print(text, end="")


if __name__ == "__main__":
    main()
