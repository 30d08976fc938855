"""Notebooks in which no Trainer trains: skipped if a folder or a pattern finds them, refused if named."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.command import Command
from tests.notebooks import code, markdown, write

LOOP = "for batch in loader:\n    loss = model(**batch).loss\n    loss.backward()"


NEVER_TRAINED = "from trl import SFTTrainer\ntrainer = SFTTrainer(model)"


@pytest.mark.parametrize(
    ("cell", "message"),
    [
        ("print(model.generate())", "skipped in/other.ipynb:cell 1:1:1: no training was found"),
        (NEVER_TRAINED, "skipped in/other.ipynb:cell 1:2:11: the notebook never calls train() of this trainer"),
        ("!python train.py", "skipped in/other.ipynb:cell 1:1:1: trains in a separate program"),
        (LOOP, "skipped in/other.ipynb:cell 1:3:5: a training loop"),
    ],
)
@pytest.mark.parametrize("argument", ["in", "in/*.ipynb"])
def test_a_folder_converts_without_it(command: Command, argument: str, cell: str, message: str) -> None:
    write("in/train.ipynb")
    write("in/other.ipynb", cell)
    result = command(argument, "-o", "out")
    assert result.exit_code == 0
    assert "1 converted, 1 skipped; 0 errors" in result.stderr
    assert sorted(path.name for path in Path("out").glob("*.py")) == ["train.py"]
    assert message in result.stderr


@pytest.mark.parametrize(("cell", "code"), [("print(model.generate())", "DDP002"), (LOOP, "DDP003")])
def test_it_is_refused_where_it_is_named(command: Command, cell: str, code: str) -> None:
    write("other.ipynb", cell)
    result = command("other.ipynb", "out.py")
    assert result.exit_code == 2
    assert code in result.stdout
    assert "1 failed; 1 error" in result.stderr
    assert not Path("out.py").exists()


@pytest.mark.parametrize("cells", [[], [markdown("# Only words")], ["", "\n"]], ids=["none", "markdown", "blank"])
def test_a_notebook_without_code_trains_nothing(cells: list[Any], command: Command, tmp_path: Path) -> None:
    empty = {"nbformat": 4, "nbformat_minor": 4, "metadata": {}}
    made = [code(cell) if isinstance(cell, str) else cell for cell in cells]
    Path("in").mkdir()
    (tmp_path / "in" / "a.ipynb").write_text(json.dumps({**empty, "cells": made}))
    refused = command("in/a.ipynb", "t.py")
    assert refused.exit_code == 2
    assert "DDP002 error: the notebook has no code" in refused.stdout
    assert not Path("t.py").exists()
    write("in/b.ipynb")
    assert command("in", "-o", "out").exit_code == 0
    assert [path.name for path in Path("out").glob("*.py")] == ["b.py"]
