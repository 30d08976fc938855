"""Rehearse the bundled notebook, converted and exported, and record the output: `python -m tests.rehearsals`.

README.md shows the output for the conversion. docs/rehearsal.md shows the faults of the script that nbconvert exports.
This takes some minutes.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from nbconvert import PythonExporter

from nb2ddp.rehearsal.environments import Environment, here
from nb2ddp.rehearsal.plan import Plan, planned

ROOT = Path(__file__).parent.parent
NOTEBOOK = ROOT / "fixtures" / "notebooks" / "alpaca.ipynb"
PAGE, README = ROOT / "docs" / "rehearsal.md", ROOT / "README.md"
FAULTS = re.compile(r"(?<=```text\n)exported\.py: .*?(?=```)", re.DOTALL)
READY = re.compile(r"(?<=```console\n\$ nb2ddp rehearse fixtures/notebooks/alpaca\.ipynb\n).*?(?=```)", re.DOTALL)


def read(script: Path, choose: Callable[[Sequence[str]], Environment] = lambda _: here()) -> Plan:
    """Return the plan of a script in a file."""
    return planned(script, script.read_text(encoding="utf-8"), choose)


def exported() -> str:
    """Return the notebook as nbconvert exports it, without the line that only a notebook can run."""
    exporter: Any = PythonExporter
    text: str = exporter().from_filename(str(NOTEBOOK))[0]
    return "\n".join(line for line in text.split("\n") if "get_ipython()" not in line)


def faults(output: str) -> str:
    """Return the first line, and the questions with a fault, each with its first evidence."""
    questions, _, _ = output.partition("\n\n  GPUs:")
    wrong = re.findall(r"^  ✗ .*\n(?:      .*\n){0,2}", questions + "\n", re.MULTILINE)
    return "\n".join([output.split("\n")[0], "", "".join(wrong)])


def ready(output: str) -> str:
    """Return the questions and their answers."""
    return output.partition("\n\n  GPUs:")[0] + "\n"


def rehearsed(path: Path) -> str:
    """Return the command's output for a script or notebook."""
    command = [sys.executable, "-m", "nb2ddp", "rehearse", "--offline", str(path)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=False)
    assert done.returncode in (0, 1), done.stdout
    return done.stdout


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        script = Path(name, "exported.py")
        script.write_text(exported(), encoding="utf-8")
        fill(PAGE, FAULTS, faults(rehearsed(script)))
    fill(README, READY, ready(rehearsed(NOTEBOOK)))


def fill(page: Path, block: re.Pattern[str], output: str) -> None:
    page.write_text(block.sub(lambda _: output, page.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
