"""`--keep`: a conflict is resolved in one step."""

from __future__ import annotations

from pathlib import Path

import pytest

from nb2ddp.project import history
from nb2ddp.project.merge import merge
from tests.command import Command, read
from tests.notebooks import CELLS, write

#: The last cell as it was, as a person edited it, and as the notebook has it now.
WAS, MINE, NEW = (f'model.save_pretrained("{name}")' for name in ("lora", "mine", "new"))
#: A place where an edit causes no conflict.
CELL = "# %% Cell 2\n"


@pytest.fixture
def _edited(command: Command) -> None:
    """Two scripts, each with one edit that is kept and one that conflicts."""
    for name in "ab":
        write(f"{name}.ipynb")
        command(f"{name}.ipynb")
        script = Path(f"{name}.py")
        script.write_text(script.read_text().replace(WAS, MINE).replace(CELL, f"{CELL}# my start\n"))
        write(f"{name}.ipynb", *CELLS[:2], f"{CELLS[2]}\nx = 1", NEW)


@pytest.mark.usefixtures("_edited")
@pytest.mark.parametrize(("side", "line"), [("mine", MINE), ("new", NEW)])
def test_takes_one_side_of_a_conflict_and_merges_the_rest(command: Command, side: str, line: str) -> None:
    refused = command("a.ipynb")
    assert refused.exit_code == 2
    assert "--keep mine takes your lines there, --keep new the notebook's" in refused.stdout
    assert command("a.ipynb", "--keep", side, "--check").exit_code == 1
    result = command("a.ipynb", "--keep", side)
    assert (result.exit_code, result.stdout) == (0, "")
    assert "kept your edits in a.py" in result.stderr
    text = read("a.py")
    assert [each for each in (WAS, MINE, NEW) if each in text] == [line]
    assert "\nx = 1\n" in text
    assert f"{CELL}# my start\n" in text
    again = command("a.ipynb")
    assert (again.exit_code, read("a.py")) == (0, text)
    assert command("a.ipynb", "--check").exit_code == 0


@pytest.mark.usefixtures("_edited")
@pytest.mark.parametrize(("side", "line"), [("mine", MINE), ("new", NEW)])
def test_where_nobody_knows_what_was_written_it_is_for_the_whole_file(
    command: Command, monkeypatch: pytest.MonkeyPatch, side: str, line: str
) -> None:
    monkeypatch.setattr(history, "recall", lambda *_: None)
    refused = command("a.ipynb")
    assert "--keep mine leaves the file as it is, --keep new replaces it" in refused.stdout
    assert command("a.ipynb", "--keep", side).exit_code == 0
    text = read("a.py")
    assert line in text
    assert ("# my start" in text) == (side == "mine")
    assert command("a.ipynb", "--check").exit_code == 0


def test_changes_nothing_where_there_is_no_conflict(command: Command) -> None:
    write("a.ipynb")
    command("a.ipynb")
    Path("mine.py").write_text("mine\n")
    assert command("a.ipynb", "--keep", "new").stderr.startswith("1 notebook: 1 up to date")
    assert "DDP906" in command("a.ipynb", "mine.py", "--keep", "new").stdout
    assert read("mine.py") == "mine\n"


def test_a_removed_cell_that_was_edited() -> None:
    was = "# %% Cell 1\na = 1\n\n# %% Cell 2\nb = 2\nc = 3\n"
    mine = was.replace("b = 2", "b = 20")
    new = "# %% Cell 1\na = 1\n"
    assert merge(was, mine, new).conflicts
    assert "b = 20" in merge(was, mine, new, "mine").text
    assert "b =" not in merge(was, mine, new, "new").text
