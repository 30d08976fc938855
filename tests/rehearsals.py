"""Rehearse the bundled notebook, converted and exported, and write down what is said: `python -m tests.rehearsals`.

It stands in docs/rehearsal.md, and in part in README.md; what is wrong with the script of nbconvert is also
drawn. That takes some minutes. `tests/test_rehearsal.py` holds that README and picture are those of the page.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from nbconvert import PythonExporter

from tests.first_hour import picture

ROOT = Path(__file__).parent.parent
NOTEBOOK = ROOT / "fixtures" / "notebooks" / "alpaca.ipynb"
PAGE, README = ROOT / "docs" / "rehearsal.md", ROOT / "README.md"
PICTURE = ROOT / "docs" / "figures" / "rehearsal.svg"
#: What is said of the exported script, and of the converted one, on the page.
BLOCK = re.compile(r"(?<=```text\n)(?:exported|alpaca)\.py: .*?(?=```)", re.DOTALL)
READY = re.compile(r"(?<=```console\n\$ nb2ddp rehearse fixtures/notebooks/alpaca\.ipynb\n).*?(?=```)", re.DOTALL)


def exported() -> str:
    """The notebook as a script of nbconvert, without the line that only a notebook can run."""
    exporter: Any = PythonExporter
    text: str = exporter().from_filename(str(NOTEBOOK))[0]
    return "\n".join(line for line in text.split("\n") if "get_ipython()" not in line)


def faults(page: str) -> str:
    """A terminal that shows what is wrong with the exported script."""
    said = next(block for block in BLOCK.findall(page) if block.startswith("exported"))
    questions, _, _ = said.partition("\n\n  GPUs:")
    wrong = re.findall(r"^  ✗ .*\n(?:      .*\n)*", questions + "\n", re.MULTILINE)
    return "\n".join(["$ nb2ddp rehearse exported.py", said.split("\n")[0], "", "".join(wrong).rstrip("\n")])


def ready(page: str) -> str:
    """What README shows of the converted script: the questions and their answers."""
    said: str = next(block for block in BLOCK.findall(page) if block.startswith("alpaca"))
    return said.partition("\n\n  GPUs:")[0] + "\n"


def rehearsed(path: Path) -> str:
    """What the command says of a script or notebook."""
    command = [sys.executable, "-m", "nb2ddp", "rehearse", "--offline", "--quiet", str(path)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=False)
    assert done.returncode in (0, 1), done.stdout
    return done.stdout


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        script = Path(name, "exported.py")
        script.write_text(exported(), encoding="utf-8")
        said = {path.stem: rehearsed(path) for path in (script, NOTEBOOK)}
    page = BLOCK.sub(lambda found: said[found[0].partition(".")[0]], PAGE.read_text(encoding="utf-8"))
    PAGE.write_text(page, encoding="utf-8")
    README.write_text(READY.sub(lambda _: ready(page), README.read_text(encoding="utf-8")), encoding="utf-8")
    PICTURE.write_text(picture(faults(page)), encoding="utf-8")


if __name__ == "__main__":
    main()
