"""Headings and texts whose code is gone."""

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
    (["> # Title", INSTALL, "> # Load"], ["# Title", "# Load"]),
    (["> # Title", "> ### Installation", INSTALL, "> It takes a while."], ["# Title", "It takes a while."]),
    (["> # Title", "> ### Installation\nIt takes a while.", INSTALL, "> ### Load"], ["# Title", "### Load"]),
    (["> # Title", "> ### Installation", "> Install `trl`.", INSTALL, "> ### Load"], ["# Title", "### Load"]),
    (["> # Title", "> ### Look", LOOK, "seed = 1", "> ### Load"], None),
    (["> # Title", "> ### Installation", "seed = 1", INSTALL, "> ### Load"], None),
    (["> # Title", "> Install `trl` for training.", INSTALL], ["# Title"]),
    (["> # Title", "> Now restart the runtime:", "import os\nos._exit(0)"], ["# Title"]),
    (["> # Title", f"> Install `trl`. {'It does a lot. ' * 30}", INSTALL], None),
    (["> # Title", "> ### Installation", "", "> ### Load"], None),
    (["> # Install Unsloth and fine-tune a model", INSTALL, "> # Load"], None),
    (["> # Title", "> If trl is not installed, this stops", "import json"], None),
]


@pytest.mark.parametrize(("cells", "left"), SECTIONS)
def test_a_text_about_an_installation_goes_with_its_code(cells: list[str], left: list[str] | None) -> None:
    own = [markdown(cell[2:]) if cell.startswith("> ") else cell for cell in cells]
    script = convert_source(text(*own, *CELLS[1:])).files["train.py"]
    parts = re.findall(r"(?m)^# %% \[markdown\]\n((?:#.*\n)+)", script)
    texts = [cell[2:] for cell in cells if cell.startswith("> ")]
    assert [re.sub("^# ?", "", part, flags=re.M).strip() for part in parts] == (
        [each.strip() for each in texts] if left is None else left
    )


def test_blank_lines_around_a_text_and_texts_without_words_leave_nothing() -> None:
    texts = [markdown(each) for each in ("", "\n \n  # Title\n\nOf all.  \n\n", " \n ")]
    script = convert_source(text(*texts, *CELLS[1:])).files["train.py"]
    assert script.count("# %% [markdown]\n") == 1
    assert "\n\n# %% [markdown]\n#   # Title\n#\n# Of all.\n\n# %% Cell 4\n" in script


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
