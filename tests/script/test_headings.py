"""Headings and texts whose code is removed."""

from __future__ import annotations

import re

import pytest

from nb2ddp.convert import convert_source
from tests.examples import rows, table
from tests.notebooks import CELL_BREAK, CELLS, markdown, text

NO_INSTALL = "> # Title\n# %%\n> ### Installation\n# %%\n\n# %%\n> ### Load"


@pytest.mark.parametrize(("code", "answers"), [*rows(__file__, "texts"), (NO_INSTALL, ["all"])])
def test_a_text_about_an_installation_goes_with_its_code(code: str, answers: list[str]) -> None:
    """Text cells among the cells above the training start with `>`."""
    cells = code.split(f"\n{CELL_BREAK}")
    texts = [cell[2:] for cell in cells if cell.startswith("> ")]
    own = [markdown(cell[2:]) if cell.startswith("> ") else cell for cell in cells]
    script = convert_source(text(*own, *CELLS[1:])).files["train.py"]
    parts = re.findall(r"(?m)^# %% \[markdown\]\n((?:#.*\n)+)", script)
    left = [re.sub("^# ?", "", part, flags=re.M).strip() for part in parts]
    assert left == ([each.strip() for each in texts] if answers == ["all"] else answers)


def test_blank_lines_around_a_text_and_texts_without_words_leave_nothing() -> None:
    texts = [markdown(each) for each in ("", "\n \n  # Title\n\nOf all.  \n\n", " \n ")]
    script = convert_source(text(*texts, *CELLS[1:])).files["train.py"]
    assert script.count("# %% [markdown]\n") == 1
    assert "\n\n# %% [markdown]\n#   # Title\n#\n# Of all.\n\n# %% Cell 4\n" in script


@table(__file__, "imports")
def test_imports_that_nothing_reads_go_with_the_rest_of_their_cell(code: str, answers: list[str]) -> None:
    script = convert_source(text(*code.split(f"\n{CELL_BREAK}"), *CELLS[1:])).files["train.py"]
    found = re.search(r"(?m)^# %% Cell 1\n((?:.+\n)*)", script)
    assert (found[1].strip() if found else "") == "".join(answers)
