"""A conversion uses the options of the previous one, unless other options are given."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.command import Command, files, read
from tests.notebooks import CELLS, write


@pytest.fixture(autouse=True)
def _notebook(command: Command) -> None:
    write("a.ipynb", "!pip install unsloth", *CELLS)


def options_of(script: str) -> str:
    """Return the options in a script's line `convert again:`."""
    found = re.search(r"convert again: nb2ddp \S+ \S+ ?(.*)  # ", read(script))
    assert found is not None
    return found[1]


@pytest.mark.parametrize(
    "given",
    [
        "--gpus 4",
        "--gpus 4 --machines 2 --resume",
        "--launcher slurm --machines 2",
        "--batch 2 --ignore DDP103,DDP105",
        "--launcher notebook",
    ],
)
def test_a_plain_conversion_takes_them_again(command: Command, given: str) -> None:
    assert command("a.ipynb", *given.split()).exit_code == 0
    before = {name: Path(name).read_bytes() for name in files()}
    for line in (("a.ipynb",), ("a.ipynb", "--check"), (".", "-o", "."), (".", "-o", ".", "--check")):
        result = command(*line)
        assert (result.exit_code, result.stdout) == (0, "")
        assert {name: Path(name).read_bytes() for name in files()} == before


def test_they_are_said_where_something_is_written(command: Command) -> None:
    command("a.ipynb", "--gpus", "4", "--resume")
    message = "a.py: --gpus 4 --resume, as its first lines say\n"
    write("a.ipynb", *CELLS, "x = 1")
    assert message in command("a.ipynb", "--check").stderr
    assert message in command("a.ipynb").stderr
    assert message not in command("a.ipynb").stderr
    assert f"DDP908 note: {message}" in command("a.ipynb", "-v").stdout


def test_any_option_of_the_command_line_replaces_them_all(command: Command) -> None:
    command("a.ipynb", "--gpus", "4", "--resume")
    result = command("a.ipynb", "--gpus", "8")
    assert "a.py: --gpus 8, the last time --gpus 4 --resume" in result.stderr.splitlines()
    assert options_of("a.py") == "--gpus 8"
    command("a.ipynb", "--gpus", "2")
    assert options_of("a.py") == ""


def test_pyproject_is_stronger_and_the_command_line_strongest(command: Command) -> None:
    command("a.ipynb", "--gpus", "8", "--resume")
    Path("pyproject.toml").write_text("[tool.nb2ddp]\ngpus = 4\n")
    result = command("a.ipynb")
    assert "a.py: --gpus 4 --resume, the last time --gpus 8 --resume" in result.stderr
    assert options_of("a.py") == "--gpus 4 --resume"
    assert command("a.ipynb", "--check").exit_code == 0
    command("a.ipynb", "--gpus", "6")
    assert options_of("a.py") == "--gpus 6"
    assert command("a.ipynb", "--check").exit_code == 1, "pyproject.toml has 4"


def test_a_script_of_another_notebook_lends_none(command: Command) -> None:
    write("b.ipynb")
    command("a.ipynb", "t.py", "--gpus", "8")
    assert command("b.ipynb", "t.py", "--keep", "nothing").exit_code == 0
    assert options_of("t.py") == ""


def test_standard_output_takes_none(command: Command) -> None:
    plain = command("a.ipynb", "-").stdout
    command("a.ipynb", "--gpus", "8")
    assert command("a.ipynb", "-").stdout == plain


def test_two_that_differ_in_one_folder_are_refused_until_somebody_says(command: Command) -> None:
    write("b.ipynb")
    command("a.ipynb", "--gpus", "8")
    command("b.ipynb", "--gpus", "4")
    result = command(".", "-o", ".")
    assert result.exit_code == 2
    assert "or give both the same options" in result.stderr
    assert command(".", "-o", ".", "--gpus", "6").exit_code == 0
    assert {options_of(f"{name}.py") for name in "ab"} == {"--gpus 6"}
