"""Requirements files for install cells of every style in public notebooks (`packages.txt`)."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from packaging.requirements import Requirement

from nb2ddp.convert import convert_source
from nb2ddp.facts.program import Program
from nb2ddp.notebook.ipynb import parse_notebook
from nb2ddp.options import Options
from nb2ddp.script.packages import Requirements, install_command, requirements
from tests.examples import rows
from tests.notebooks import CELL_BREAK, CELLS, text

#: The versions that a script with Unsloth asks for.
FLOORS = (("unsloth", "2026.7.1"), ("unsloth_zoo", "2026.9.9"))


def read(*cells: str, minimums: Iterable[tuple[str, str]] = ()) -> Requirements:
    return requirements(Program(parse_notebook(text(*cells), "notebook"), Options()), minimums)


def lines(content: str) -> list[str]:
    return [line for line in content.splitlines() if not line.startswith("#")]


@pytest.mark.parametrize(
    ("minimums", "code", "answers"),
    [
        pytest.param(minimums, *row.values, id=row.id)
        for section, minimums in (("as the notebook asks", ()), ("where the script asks for versions", FLOORS))
        for row in rows(__file__, section)
    ],
)
def test_packages(minimums: Iterable[tuple[str, str]], code: str, answers: list[str]) -> None:
    """Check the lines of the file, the packages to install after it, and the notes; pip can read every line."""
    found = read(*code.split(f"\n{CELL_BREAK}"), minimums=minimums)
    files = found.files("train.py")
    listed = [line for content in files.values() for line in lines(content)]
    apart = [f"apart: {package.line}" for package in found.packages if package.is_apart]
    assert listed + apart + [f"note: {note}" for _, note in found.notes] == answers
    assert bool(files) == bool(answers)
    for line in listed:
        if not line.startswith(("-", "git+", "https:")):
            Requirement(line)


def test_one_file_and_one_line_install_all() -> None:
    found = read("!pip install unsloth flash-attn\n!pip install --no-deps trl==1.0.0\n!apt install ffmpeg")
    ((name, content),) = found.files("my train.py", "alpaca").items()
    assert (name, content) == (
        "my train.requirements.txt",
        """\
# The packages of alpaca.
#   pip install -r 'my train.requirements.txt' && pip install --no-deps --no-build-isolation flash-attn
# Notes:
#   cell 1: not a Python package: apt install ffmpeg
unsloth
trl==1.0.0
""",
    )
    line = "pip install -r 'a b.txt' && pip install --no-deps --no-build-isolation flash-attn"
    assert install_command("a b.txt", content) == line


def test_the_versions_that_a_script_asks_for_are_installed_however_the_notebook_names_them() -> None:
    notebook = text("!pip install unsloth unsloth_zoo", *CELLS[1:])
    files = convert_source(notebook, options=Options()).files
    assert lines(files["train.requirements.txt"]) == ["unsloth>=2026.7.1", "unsloth_zoo>=2026.9.9"]
    notebook = text("!pip install unsloth==2026.8.1", *CELLS[1:])
    files = convert_source(notebook, options=Options()).files
    assert lines(files["train.requirements.txt"]) == ["unsloth==2026.8.1"]


def test_a_notebook_that_installs_nothing_needs_what_it_trains_with() -> None:
    files = convert_source(text(*CELLS[1:]), options=Options()).files
    assert lines(files["train.requirements.txt"]) == ["unsloth>=2026.7.1", "unsloth_zoo>=2026.9.9"]
    without = 'from trl import SFTTrainer\ntrainer = SFTTrainer("Qwen/Qwen3-0.6B")\ntrainer.train()'
    files = convert_source(text(without), options=Options()).files
    assert [line[:3] for line in lines(files["train.requirements.txt"])] == ["trl"]
