"""Notebooks based on public reports of problems on several GPUs: each script is right, or says what is not.

`tests/e2e/test_trains.py` also rehearses the notebooks that can train on the CPU.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from nb2ddp.convert import convert_source
from nb2ddp.results import NotebookError
from tests.examples import rows

CASES = Path(__file__).parent.parent / "fixtures" / "cases"


EXPECTED = rows(__file__)


@pytest.mark.parametrize(("name", "answers"), EXPECTED)
def test_script_is_right_or_says_what_is_not(name: str, answers: list[str]) -> None:
    """Check the codes of the script's `TODO`s, and what the script has and lacks."""
    script = convert_source((CASES / f"{name}.ipynb").read_text(encoding="utf-8"), name).files["train.py"]
    todos = [f"TODO {code}" for code in re.findall(r"TODO\[nb2ddp\] (\w+):", script)]
    assert todos == [each for each in answers if each.startswith("TODO ")]
    for kind, _, part in (each.partition(" ") for each in answers):
        assert kind == "TODO" or (part in script) == (kind == "has")


def test_a_model_that_the_environment_shards_is_refused() -> None:
    with pytest.raises(NotebookError) as caught:
        convert_source((CASES / "fsdp2_env.ipynb").read_text(encoding="utf-8"), "fsdp2_env")
    found = [(each.code, each.message.partition(" ")[0]) for each in caught.value.diagnostics]
    assert found == [("DDP004", "UNSLOTH_FSDP2"), ("DDP004", "UNSLOTH_TP_SIZE")]


def test_each_case_has_its_expectation() -> None:
    assert {path.stem for path in CASES.glob("*.ipynb")} == {*(each.values[0] for each in EXPECTED), "fsdp2_env"}
