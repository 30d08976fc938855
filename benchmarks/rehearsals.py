"""Rehearse many notebooks, keep the results, and write them to docs/rehearsal.md.

    python -m benchmarks.rehearsals users FOLDER ... --nameless [--again PATTERN]
    python -m benchmarks.rehearsals sample FOLDER ... --draw 20 --seed 20261122
    python -m benchmarks.rehearsals kinds            # those that ran on GPUs
    python -m benchmarks.rehearsals faults           # the planted faults of fixtures/faults/faults.toml
    python -m benchmarks.rehearsals --page           # the tables of docs/rehearsal.md from the kept results

If a verdict suggests `--versions notebook`, `typed` is the exit code with it, or with the pins of most notebooks. A
rehearsal whose result is kept is not repeated, so the same command continues where it stopped. Each rehearsal is one
call of `nb2ddp rehearse --offline`. Its result has the wall-clock seconds, and the processor seconds of all its
processes.
"""

from __future__ import annotations

import argparse
import contextlib
import fnmatch
import hashlib
import json
import random
import re
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import nbformat

from benchmarks.gpu.kinds import KINDS
from benchmarks.gpu.scripts import notebook
from benchmarks.tables import fill, table
from nb2ddp.convert import convert_source
from nb2ddp.rehearsal.plan import planned
from nb2ddp.rehearsal.rehearse import Options, rehearse
from nb2ddp.rehearsal.report import headline
from nb2ddp.results import NotebookError
from tests.e2e.faults import FAULTS, is_found

ROOT = Path(__file__).resolve().parents[1]
OUT = ROOT / "benchmarks" / "results" / "rehearsals.json"
PAGE = ROOT / "docs" / "rehearsal.md"
LIMIT = 600  # seconds of one rehearsal, after which it counts as failed
#: The name of each set on the page.
SETS = {
    "sample": "public notebooks, 60 drawn by a seed",
    "two-cores": "19 of these on two idle cores",
    "fixtures": "`fixtures/notebooks`",
    "users": "notebooks that users made, without their data",
    "kinds": "kinds of [performance.md](performance.md), on a busy machine",
}
#: How a verdict ends if it says what to type, or what to put beside the script.
_GIVES = re.compile(
    r"--(data|trust|versions)\b|pip install|beside the script|Python 3\.12 accepts it|"
    r"change (this line|the notebook)|it has no training|system library"
)
Result = dict[str, Any]
Kept = dict[str, dict[str, Any]]  #: set -> notebook -> result


def rehearsed(path: Path) -> Result:
    """Rehearse once. Return the code, verdict, seconds, and the first line at fault or that could not be rehearsed."""
    if not converts(path):
        return {"code": 2, "converts": False, "verdict": "it does not convert"}
    command = [sys.executable, "-m", "nb2ddp", "rehearse", str(path), "--offline", "--format", "json"]
    start, before = time.monotonic(), resource.getrusage(resource.RUSAGE_CHILDREN)
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT, check=False)
    except subprocess.TimeoutExpired:
        return {"code": 2, "converts": True, "verdict": f"took more than {LIMIT} seconds", "seconds": LIMIT}
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    computed = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    about = {"seconds": round(time.monotonic() - start, 1), "processor": round(computed, 1), "converts": True}
    return about | {"code": done.returncode} | _outcome(done, path)


def _outcome(done: subprocess.CompletedProcess[str], path: Path) -> Result:
    if not done.stdout.strip():
        message = done.stderr.strip()[-300:].removeprefix(f"{path}:")
        return {"verdict": message, "gives": _GIVES.search(message) is not None}
    verdict = json.loads(done.stdout)
    result = {"verdict": verdict["verdict"], "runs": verdict["seconds"], "unsloth": verdict["unsloth"]}
    measured = " ".join(row["measured"] for row in verdict["questions"])
    if apart := re.search(r"losses (?:to|within) ([\d.e+-]+)", measured):
        result["apart"] = float(apart[1])
    faults = [place | {"asked": row["asked"]} for row in verdict["questions"] for place in row["places"]]
    if first := verdict["obstacle"] or next(iter(faults), None):
        result["first"] = first
        result["gives"] = _GIVES.search(first["text"]) is not None
    return result


def nameless(name: str, result: Result) -> tuple[str, Result]:
    """Return a result without words of a notebook that is not ours to name: of its first reason, the kind of error."""
    kind = re.match(r"(?:.*: )?(\w+(?:Error|Exception|Iteration))\b", result.get("first", {}).get("text", ""))
    kept = {
        key: result[key]
        for key in ("code", "converts", "seconds", "processor", "runs", "unsloth", "gives", "apart", "typed")
        if key in result
    }
    return hashlib.sha256(name.encode()).hexdigest()[:8], kept | ({"error": kind[1]} if kind else {})


def planted_and_found(name: str) -> Result:
    """Return whether a rehearsal of its script finds a planted fault, and the verdict."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, f"{name}.py")
        file.write_text(FAULTS[name].text())
        plan = planned(file, file.read_text(encoding="utf-8"))
        verdict = rehearse(plan, Options(offline=True, limit=300))
    found = is_found(FAULTS[name], plan, verdict)
    return {"script": FAULTS[name].script, "found": found, "verdict": headline(verdict)}


def write(results: Kept, out: Path) -> None:
    """Write the results, all or none of them."""
    with tempfile.NamedTemporaryFile("w", dir=out.parent, delete=False, encoding="utf-8") as file:
        file.write(json.dumps(results, indent=1, sort_keys=True, ensure_ascii=False) + "\n")
    Path(file.name).replace(out)
    out.chmod(0o644)


def write_kinds(folder: Path) -> None:
    """Write the notebook of each kind that was measured on GPUs."""
    for name in KINDS:
        nbformat.write(notebook(name), folder / f"{name}.ipynb")


def drawn(folders: Iterable[Path], count: int, seed: int) -> list[Path]:
    """Return the notebooks of folders, including marimo's, or `count` of those that convert, drawn by a seed."""
    each = (sorted([*folder.glob("*.ipynb"), *folder.glob("*.py")]) for folder in folders)
    paths = [path for some in each for path in some]
    return random.Random(seed).sample([path for path in paths if converts(path)], count) if count else paths


def name_of(path: Path) -> str:
    """Return the name to keep a result under. A `.py` suffix stays, as a Jupyter notebook may have the same name."""
    return path.name.removesuffix(".ipynb")


def converts(path: Path) -> bool:
    """Return whether a notebook converts."""
    with contextlib.suppress(NotebookError):
        return bool(convert_source(path.read_text(encoding="utf-8-sig"), path.stem))
    return False


def summary(results: Kept) -> str:
    """Return a table of how many notebooks of each set were ready, and how long they took."""

    def row(name: str, found: Iterable[Result]) -> list[str]:
        ran = [each for each in found if each["converts"]]
        code = Counter(each["code"] for each in ran)
        given = sum(each["code"] == 2 and each.get("gives", False) for each in ran)
        typed = sum(each.get("typed") in (0, 3) for each in ran)
        seconds = [each["seconds"] for each in ran if each["code"] == 0 and "seconds" in each]
        times = f"{statistics.median(seconds):.0f} / {max(seconds):.0f}" if seconds else ""
        share = f"{code[0]} ({code[0] / len(ran):.0%})"
        return [SETS[name], str(len(ran)), share, *map(str, (code[3], given, typed, code[1], code[2] - given)), times]

    head = (
        *(
            "of",
            "that convert",
            "ready",
            "but for a cell",
            "needs something, which the first line names",
            "`--versions notebook` made it ready",
        ),
        *("a fault", "other"),
        "seconds: median / most",
    )
    return table(head, (row(name, results[name].values()) for name in SETS if name in results))


def planted(results: Kept) -> str:
    """Return a table of how many planted faults were found, by script."""
    scripts = Counter(fault.script for fault in FAULTS.values())
    kept = [result for name, result in results["faults"].items() if name in FAULTS]
    ran, found = (Counter(result["script"] for result in kept if result["found"] or every) for every in (True, False))
    rows = [[f"`{name}`", str(count), str(ran[name]), str(found[name])] for name, count in sorted(scripts.items())]
    return table(("script", "planted", "rehearsed", "found"), rows)


TABLES: dict[str, Callable[[Kept], str]] = {"rehearsals": summary, "faults": planted}


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.rehearsals", description=__doc__)
    parser.add_argument("set", choices=[*SETS, "faults"], nargs="?")
    parser.add_argument("folders", type=Path, nargs="*")
    parser.add_argument("--draw", type=int, default=0, help="only so many, drawn from those that convert")
    parser.add_argument("--seed", type=int, default=0, help="of the draw")
    parser.add_argument("--again", default="", help="rehearse those again whose name fits this pattern")
    parser.add_argument("--nameless", action="store_true", help="keep no words of the notebooks")
    parser.add_argument("--page", action="store_true", help="write the tables of docs/rehearsal.md")
    return parser.parse_args()


def main() -> None:
    given = options()
    results = json.loads(OUT.read_text(encoding="utf-8")) if OUT.exists() else {}
    for name in FAULTS if given.set == "faults" else ():
        if name not in results["faults"] or fnmatch.fnmatch(name, given.again):
            results["faults"][name] = planted_and_found(name)
            write(results, OUT)
    with tempfile.TemporaryDirectory() as scratch:
        if given.set == "kinds":
            write_kinds(Path(scratch))
        found: dict[str, Result] = results.setdefault(given.set, {}) if given.set else {}
        todo = [
            path
            for path in drawn(given.folders or [Path(scratch)], given.draw, given.seed)
            if not {name_of(path), nameless(name_of(path), {})[0]} & found.keys()
            or fnmatch.fnmatch(name_of(path), given.again)
        ]
        for path in todo:
            result = rehearsed(path)
            name, kept = nameless(name_of(path), result) if given.nameless else (name_of(path), result)
            found[name] = kept
            write(results, OUT)
            print(
                f"{result['code']} {result.get('seconds', 0):6.1f} s  {path.name}: {result['verdict'][:160]}",
                flush=True,
            )
    if given.page:
        PAGE.write_text(fill(PAGE.read_text(encoding="utf-8"), results, TABLES), encoding="utf-8")


if __name__ == "__main__":
    main()
