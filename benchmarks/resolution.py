"""Resolve the requirements of many notebooks with uv, and write the results to docs/rehearsal.md.

    python -m benchmarks.resolution FOLDER ... [--of users]
    python -m benchmarks.resolution --page    # the table from the kept results

Each folder contains notebooks, as .ipynb or marimo's .py. uv resolves the requirements that pip would get for each, for
Python 3.12 on Linux, without installing them, and each distinct set once. Requirements from a git repository, a file or
an index that cannot be reached from here are left out and counted separately. Failures are printed.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import tempfile
from collections import Counter
from collections.abc import Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cache
from pathlib import Path

from benchmarks.rehearsals import PAGE, ROOT, write
from benchmarks.tables import fill, table
from nb2ddp.convert import convert_source
from nb2ddp.options import Options
from nb2ddp.rehearsal import upstream, uv
from nb2ddp.rehearsal.environments import ANY_VERSION
from nb2ddp.results import NotebookError

OUT = ROOT / "benchmarks" / "results" / "resolution.json"
LIMIT = 300  # seconds of one resolution
JOBS = 16  # at a time; each mostly waits for the index
PYTHON = "3.12"
#: The possible results of a set, with their names on the page.
ENDS = {
    "all": "fit together",
    "the rest": "fit, but for what is not reached",
    "away": "do not fit without it",
    "failed": "do not fit",
    "none": "nothing to install",
}
FOLDERS = {
    "nb": "public notebooks",
    "variants": "variants of them",
    "molab": "marimo's",
    "users": "notebooks that users made",
}
_AWAY = re.compile(r"[$`{]|git\+|@ |^https?://|\.whl$|^-e |^\./|^-r ")
_INDEX = re.compile(r"^--(?:extra-index-url|index-url|find-links) (https?://\S+)")
#: How a note names an option of the notebook that only the notebook's machine knows.
_LEFT_OUT = re.compile(r"^#   cell \d+: (-\S+ \S+) is left out:")
#: How uv reports that no index that it reaches has a package, or has it for this Python.
_LACKING = re.compile(r"Because ([\w.-]+) was not found|all versions of ([\w.-]+) cannot be used")


def asked(files: Mapping[str, str]) -> tuple[str, ...]:
    """Return the lines that pip gets, and the options of the notebook that only the notebook's machine knows.

    Args:
        files: the files that a conversion writes: texts by name.
    """
    lines = [line for name, text in files.items() if name.endswith(".requirements.txt") for line in text.splitlines()]
    left_out = (match[1] for line in lines if (match := _LEFT_OUT.search(line)))
    return (*(line for line in lines if line.strip() and not line.startswith("#")), *left_out)


def resolve(lines: tuple[str, ...]) -> tuple[str, str]:
    """Resolve the requirements file of a notebook. Return a key of `ENDS`, and the message of uv if it fails."""
    reached = [line for line in lines if _is_reached(line)]
    why = _resolved(tuple(reached))
    while why and len(reached) < len(lines) and (lacking := _LACKING.search(why)):
        rest = [line for line in reached if not re.match(rf"{lacking[1] or lacking[2]}\b(?!-)", line)]
        if rest == reached:
            break
        reached, why = rest, _resolved(tuple(rest))
    is_all = len(reached) == len(lines)
    if why:
        return ("failed" if is_all else "away"), why
    return ("all" if is_all else "the rest") if lines else "none", ""


def _is_reached(line: str) -> bool:
    index = _INDEX.match(line)
    return _answers(index[1]) if index and "$" not in line else not _AWAY.search(line)


@cache
def _answers(address: str) -> bool:
    return upstream.answers(address)


@cache
def _resolved(lines: tuple[str, ...]) -> str:
    """Return the message of uv about requirements that do not fit together, or "" if they do."""
    command = [uv.program(), "pip", "compile", "--quiet", "--no-header", "--python-version", PYTHON, "-"]
    command += ["--python-platform", "linux", "--prerelease", "if-necessary-or-explicit"]
    with tempfile.TemporaryDirectory() as scratch:
        overrides = Path(scratch, "overrides.txt")
        overrides.write_text("\n".join(ANY_VERSION), encoding="utf-8")
        done = subprocess.run(
            [*command, "--overrides", str(overrides)],
            input="\n".join(lines),
            env=uv.settings(),
            capture_output=True,
            text=True,
            timeout=LIMIT,
            check=False,
        )
    return " ".join(done.stderr.split()) if done.returncode else ""


def resolved(folders: Iterable[Path]) -> dict[Path, tuple[str, str]]:
    """Return how the requirements of each notebook that converts resolve, and the message of uv."""
    ends: dict[tuple[str, ...], Future[tuple[str, str]]] = {}
    found: dict[Path, tuple[str, ...]] = {}
    with ThreadPoolExecutor(JOBS) as pool:
        for path in (path for folder in folders for path in sorted([*folder.glob("*.ipynb"), *folder.glob("*.py")])):
            try:
                text = path.read_text(encoding="utf-8-sig")
                done = convert_source(text, path.stem, "train.py", Options(), path.name)
            except NotebookError:
                continue
            found[path] = asked(done.files)
            if found[path] not in ends:
                ends[found[path]] = pool.submit(resolve, found[path])
    return {path: ends[wanted].result() for path, wanted in found.items()}


def summary(results: Mapping[str, Mapping[str, int]]) -> str:
    """Return a table of how many notebooks' requirements fit together."""
    head = ("requirements of", "notebooks", *ENDS.values())
    rows = (
        [title, *(str(results[name].get(key, 0)) for key in ("notebooks", *ENDS))]
        for name, title in FOLDERS.items()
        if name in results
    )
    return table(head, rows)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.resolution", description=__doc__)
    parser.add_argument("folders", type=Path, nargs="*")
    parser.add_argument("--of", choices=FOLDERS, help="what the folders hold, where their names do not say it")
    parser.add_argument("--page", action="store_true", help="write the table of docs/rehearsal.md")
    given = parser.parse_args()
    results = json.loads(OUT.read_text(encoding="utf-8")) if OUT.exists() else {}
    found = resolved(given.folders)
    for folder in given.folders:
        own = {path: result for path, result in found.items() if path.parent == folder}
        for path, (_, why) in own.items():
            print(f"{path.name}: {why}\n" if why else "", end="", flush=True)
        results[given.of or folder.name] = {"notebooks": len(own)} | Counter(end for end, _ in own.values())
        print(folder.name, results[given.of or folder.name], flush=True)
        write(results, OUT)
    if given.page:
        PAGE.write_text(fill(PAGE.read_text(encoding="utf-8"), results, {"resolution": summary}), encoding="utf-8")


if __name__ == "__main__":
    main()
