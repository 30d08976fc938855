"""Modules that a script imports but nothing provides are among its needs."""

from __future__ import annotations

from nb2ddp.convert import convert_source
from tests.examples import table
from tests.notebooks import CELL_BREAK, text

TRAIN = "from trl import SFTTrainer\ntrainer = SFTTrainer()\ntrainer.train()"
INSTALL = "!pip install unsloth\nimport sys"


@table(__file__, "modules")
def test_modules(code: str, answers: list[str]) -> None:
    cells = code.split(f"\n{CELL_BREAK}")
    assert convert_source(text(*cells, TRAIN)).needs == tuple(f"the module {name} (cell 2)" for name in answers)


def test_a_module_is_named_once_and_is_no_requirement() -> None:
    done = convert_source(text(INSTALL, "import utils", TRAIN, "from utils import show"))
    assert done.needs == ("the module utils (cells 2, 4)",)
    assert "#   needs:         the module utils (cells 2, 4)\n" in done.files["train.py"]
