"""Rehearse every planted fault of tests/e2e/faults.py, and keep in results/rehearsals.json whether it was found.

    python -m benchmarks.faults [PATTERN] [--again]

What has been kept is not done again.
"""

from __future__ import annotations

import argparse
import fnmatch
import json
import tempfile
import time
from pathlib import Path

from benchmarks.rehearsals import OUT, write
from nb2ddp.rehearsal import report
from nb2ddp.rehearsal.plan import read
from nb2ddp.rehearsal.rehearse import Options, rehearse
from tests.e2e.faults import FAULTS, is_found


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.faults", description=__doc__)
    parser.add_argument("pattern", nargs="?", default="*", help="only faults whose name fits")
    parser.add_argument("--again", action="store_true", help="also those that have been kept")
    given = parser.parse_args()
    for name in fnmatch.filter(FAULTS, given.pattern):
        results = json.loads(OUT.read_text(encoding="utf-8"))
        if name in results["faults"] and not given.again:
            continue
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder, f"{name}.py")
            file.write_text(FAULTS[name].text())
            plan, start = read(file), time.monotonic()
            verdict = rehearse(plan, Options(offline=True, limit=300))
        told = {
            "script": FAULTS[name].script,
            "found": is_found(FAULTS[name], plan, verdict),
            "asked": [row.asked for row in verdict.faults],
            "verdict": report.headline(verdict),
            "seconds": round(time.monotonic() - start, 1),
        }
        results["faults"][name] = told
        write(results, OUT)
        print(name, told, flush=True)


if __name__ == "__main__":
    main()
