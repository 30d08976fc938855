"""Headings of sections whose code is gone."""

from __future__ import annotations

import re

import pytest

from nb2ddp.convert import convert_source
from tests.notebooks import CELLS, markdown, text

INSTALL = CELLS[0]
LOOK = "!nvidia-smi"
#: The cells above the training, those of text with a `>` in front; and the text that is left, None for all.
SECTIONS = [
    (["> # Title", "> ### Installation", INSTALL, "> ### Load"], ["# Title", "### Load"]),
    (["> # Title", "> ## Setup", "> ### Installation", INSTALL, LOOK, "> ## Load"], ["# Title", "## Load"]),
    (["> # Title", "> ## Setup", "> ### Look", LOOK, "> ### Load"], ["# Title", "## Setup", "### Load"]),
    (["> # Title", INSTALL, "> # Load"], ["# Title", "# Load"]),
    (["> # Title", "> ### Installation", INSTALL], ["# Title", "### Installation"]),
    (["> # Title", "> ### Installation", INSTALL, "> It takes a while."], None),
    (["> # Title", "> ### Installation\nIt takes a while.", INSTALL, "> ### Load"], None),
    (["> # Title", "> ### Installation", INSTALL, "> #### Load"], None),
    (["> # Title", "> ### Installation", INSTALL, "seed = 1", "> ### Load"], None),
    (["> # Title", "> ### Installation", "", "> ### Load"], None),
]


@pytest.mark.parametrize(("cells", "left"), SECTIONS)
def test_a_heading_goes_with_all_code_of_its_section(cells: list[str], left: list[str] | None) -> None:
    own = [markdown(cell[2:]) if cell.startswith("> ") else cell for cell in cells]
    script = convert_source(text(*own, *CELLS[1:])).files["train.py"]
    parts = re.findall(r"(?m)^# %% \[markdown\]\n((?:#.*\n)+)", script)
    texts = [cell[2:] for cell in cells if cell.startswith("> ")]
    assert [re.sub("^# ", "", part, flags=re.M).strip() for part in parts] == (texts if left is None else left)


@pytest.mark.parametrize(
    ("cell", "left"),
    [
        ('import json\nos.environ["CUDA_VISIBLE_DEVICES"] = "0"', ""),
        ('# one GPU\nimport json, shutil\nos.environ["CUDA_VISIBLE_DEVICES"] = "0"', ""),
        ("import json", "import json"),  # as in the notebook
        ('import peft\nos.environ["CUDA_VISIBLE_DEVICES"] = "0"', "import peft"),
        ('import ast\nos.environ["CUDA_VISIBLE_DEVICES"] = "0"\n# %%\nast.parse("1")', "import ast"),
        ('import json\nos.environ["CUDA_VISIBLE_DEVICES"] = "0"\nseed = 1', "import json\nseed = 1"),
    ],
)
def test_imports_that_nothing_reads_go_with_the_rest_of_their_cell(cell: str, left: str) -> None:
    script = convert_source(text(*cell.split("\n# %%\n"), *CELLS[1:])).files["train.py"]
    found = re.search(r"(?m)^# %% Cell 1\n((?:.+\n)*)", script)
    assert (found[1].strip() if found else "") == left
