"""Options are those of the last time, unless somebody says otherwise."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.checkout import git
from tests.command import Command, files
from tests.notebooks import CELLS, write


@pytest.fixture
def folder(command: Command, tmp_path: Path) -> Path:
    write(tmp_path / "a.ipynb", "!pip install unsloth", *CELLS)
    return tmp_path


def options_of(script: Path) -> str:
    """The options of a script's line `convert again:`."""
    found = re.search(r"convert again: nb2ddp \S+ \S+ ?(.*)  # ", script.read_text())
    assert found is not None
    return found[1]


@pytest.mark.parametrize(
    "given",
    [
        "--num-processes 4",
        "--num-processes 4 --mixed-precision bf16 --requirements",
        "--num-processes 8 --num-machines 2 --main-process-ip gpu-1 --main-process-port 1234",
        "--launcher slurm --slurm partition=gpu --slurm time=1:00:00 --num-machines 2 --num-processes 4",
        "--per-device-batch-size 2 --ignore DDP103,DDP105",
        "--launcher notebook",
    ],
)
def test_a_plain_conversion_takes_them_again(command: Command, folder: Path, given: str) -> None:
    assert command("a.ipynb", *given.split()).exit_code == 0
    before = {name: (folder / name).read_bytes() for name in files(folder)}
    for line in (("a.ipynb",), ("a.ipynb", "--check"), (".", "-o", "."), (".", "-o", ".", "--check")):
        result = command(*line)
        assert (result.exit_code, result.stdout) == (0, "")
        assert {name: (folder / name).read_bytes() for name in files(folder)} == before


def test_they_are_said_where_something_is_written(command: Command, folder: Path) -> None:
    command("a.ipynb", "--num-processes", "4", "--mixed-precision", "bf16")
    said = "a.py: --num-processes 4 --mixed-precision bf16, from the last conversion; --reset ignores them\n"
    write(folder / "a.ipynb", *CELLS, "x = 1")
    assert said in command("a.ipynb", "--check").stderr
    assert said in command("a.ipynb").stderr
    assert said not in command("a.ipynb").stderr
    assert f"DDP908 note: {said}" in command("a.ipynb", "-v").stdout


def test_what_differs_is_said(command: Command, folder: Path) -> None:
    command("a.ipynb", "--num-processes", "4", "--requirements")
    result = command("a.ipynb", "--num-processes", "8", "--no-requirements", "--mixed-precision", "bf16")
    lines = result.stderr.splitlines()
    assert "a.py: --num-processes 8, the last time --num-processes 4" in lines
    assert "a.py: without --requirements, the last time --requirements" in lines
    assert "a.py: --mixed-precision bf16, the last time without --mixed-precision" in lines
    assert not any("from the last conversion" in line for line in lines)
    assert options_of(folder / "a.py") == "--num-processes 8 --mixed-precision bf16"


def test_reset_starts_over(command: Command, folder: Path) -> None:
    command("a.ipynb", "--num-processes", "4", "--mixed-precision", "bf16")
    assert command("a.ipynb", "--reset", "--check").exit_code == 1
    assert command("a.ipynb", "--reset", "--num-processes", "8").exit_code == 0
    assert options_of(folder / "a.py") == "--num-processes 8"
    command("a.ipynb", "--reset")
    assert options_of(folder / "a.py") == ""


def test_pyproject_is_stronger_and_the_command_line_strongest(command: Command, folder: Path) -> None:
    command("a.ipynb", "--num-processes", "8", "--mixed-precision", "bf16")
    (folder / "pyproject.toml").write_text("[tool.nb2ddp]\nnum-processes = 4\n")
    result = command("a.ipynb")
    assert "a.py: --num-processes 4, the last time --num-processes 8" in result.stderr
    assert options_of(folder / "a.py") == "--num-processes 4 --mixed-precision bf16"
    assert command("a.ipynb", "--check").exit_code == 0
    command("a.ipynb", "--num-processes", "6")
    assert options_of(folder / "a.py") == "--num-processes 6 --mixed-precision bf16"
    assert command("a.ipynb", "--check").exit_code == 1, "pyproject.toml has 4"
    assert command("a.ipynb", "--check", "--isolated").exit_code == 0


@pytest.mark.parametrize(
    ("last", "now", "kept"),
    [
        ("--launcher slurm --slurm partition=gpu", "--launcher torchrun", ""),
        ("--num-machines 2 --main-process-ip gpu-1 --mixed-precision bf16", "--num-machines 1", "bf16"),
        ("--num-machines 2 --num-processes 4 --main-process-ip gpu-1", "--main-process-ip gpu-2", "--num-processes 4"),
    ],
)
def test_what_no_longer_fits_is_forgotten_and_said(
    command: Command, folder: Path, last: str, now: str, kept: str
) -> None:
    assert command("a.ipynb", *last.split()).exit_code == 0
    result = command("a.ipynb", *now.split())
    assert result.exit_code == 0, result.output
    assert kept in options_of(folder / "a.py")
    gone = [word for word in last.split() if word.startswith("--") and word not in options_of(folder / "a.py")]
    assert all(f"the last time {word}" in result.stderr for word in gone)


def test_a_script_of_another_notebook_lends_none(command: Command, folder: Path) -> None:
    write(folder / "b.ipynb")
    command("a.ipynb", "t.py", "--num-processes", "8")
    assert command("b.ipynb", "t.py", "--force").exit_code == 0
    assert options_of(folder / "t.py") == ""


def test_standard_output_takes_none(command: Command, folder: Path) -> None:
    plain = command("a.ipynb", "-").stdout
    command("a.ipynb", "--num-processes", "8")
    assert command("a.ipynb", "-").stdout == plain


def test_the_hook_and_the_folder_agree(command: Command, folder: Path) -> None:
    git(folder, "init", "--quiet")
    command("a.ipynb", "--num-processes", "8")
    git(folder, "add", ".")
    assert command("--hook", "a.ipynb").exit_code == 0
    assert command("--hook", "--check", "a.ipynb").exit_code == 0


def test_two_that_differ_in_one_folder_are_refused_until_somebody_says(command: Command, folder: Path) -> None:
    write(folder / "b.ipynb")
    command("a.ipynb", "--num-processes", "8")
    command("b.ipynb", "--num-processes", "4")
    result = command(".", "-o", ".")
    assert result.exit_code == 2
    assert "or set the same options for both; --reset ignores the last ones" in result.stderr
    assert command(".", "-o", ".", "--num-processes", "6").exit_code == 0
    assert {options_of(folder / f"{name}.py") for name in "ab"} == {"--num-processes 6"}
