"""Rehearse every notebook of a folder, and keep what came out: what stopped is gone on with, by the same command.

    python -m benchmarks.rehearsals FOLDER [--out benchmarks/results/rehearsals.json] [--every 10] [--again PATTERN]

Each is one call of `nb2ddp rehearse`; its seconds by the wall, and those of the processors that all its processes used.
Notebooks that train nothing, or that are not converted, are named with the reason.
"""

from __future__ import annotations

import argparse
import fnmatch
import json
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

OUT = Path(__file__).parent / "results" / "rehearsals.json"
LIMIT = 600  # seconds of one rehearsal, after which it counts as failed


def rehearsed(notebook: Path, kept: Path | None) -> dict[str, Any]:
    """One rehearsal: its code, verdict, seconds, and the first line that is at fault or could not be rehearsed."""
    command = [sys.executable, "-m", "nb2ddp", "rehearse", str(notebook), "-q", "--format", "json"]
    if kept is not None:
        shutil.rmtree(kept / notebook.stem, ignore_errors=True)
        command += ["--keep", str(kept / notebook.stem)]
    start, before = time.monotonic(), resource.getrusage(resource.RUSAGE_CHILDREN)
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT, check=False)
    except subprocess.TimeoutExpired:
        return {"code": 2, "verdict": f"took more than {LIMIT} seconds", "seconds": LIMIT}
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    computed = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    told: dict[str, Any] = {"seconds": round(time.monotonic() - start, 1), "processor": round(computed, 1)}
    if not done.stdout.strip():
        return told | {"code": done.returncode, "verdict": done.stderr.strip()[-300:]}
    verdict = json.loads(done.stdout)
    told |= {"code": done.returncode, "verdict": verdict["verdict"], "runs": verdict["seconds"]}
    told["unsloth"] = verdict["unsloth"]
    faults = [place | {"asked": row["asked"]} for row in verdict["questions"] for place in row["places"]]
    if first := verdict["obstacle"] or next(iter(faults), None):
        told["first"] = first
    return told


def write(results: dict[str, Any], out: Path) -> None:
    """Keep the results, all or none of them."""
    with tempfile.NamedTemporaryFile("w", dir=out.parent, delete=False, encoding="utf-8") as file:
        file.write(json.dumps(results, indent=1, sort_keys=True, ensure_ascii=False) + "\n")
    Path(file.name).replace(out)
    out.chmod(0o644)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.rehearsals", description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--out", type=Path, default=OUT)
    parser.add_argument("--every", type=int, default=1, help="only each so-manieth notebook")
    parser.add_argument("--again", default="", help="rehearse those again whose name fits this pattern")
    parser.add_argument("--failed", action="store_true", help="rehearse those again that were not ready")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--keep", type=Path, help="a folder in which everything about the runs stays")
    given = parser.parse_args()
    results: dict[str, Any] = json.loads(given.out.read_text(encoding="utf-8")) if given.out.exists() else {}
    notebooks = [
        path
        for path in sorted(given.folder.glob("*.ipynb"))[:: given.every]
        if path.stem not in results
        or fnmatch.fnmatch(path.stem, given.again)
        or (given.failed and results[path.stem]["code"])
    ]
    with ProcessPoolExecutor(given.jobs) as pool:
        for path, told in zip(notebooks, pool.map(partial(rehearsed, kept=given.keep), notebooks), strict=True):
            results[path.stem] = told
            write(results, given.out)
            print(f"{told['code']} {told['seconds']:6.1f} s  {path.stem}: {told['verdict'][:160]}", flush=True)


if __name__ == "__main__":
    main()
