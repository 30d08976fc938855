"""The place that the refusal of a notebook without training names."""

from __future__ import annotations

import pytest

from nb2ddp import NotebookError, convert_source
from tests.examples import table
from tests.notebooks import text

HEAD = "%%capture\n!pip install unsloth"


@table(__file__)
def test_the_refusal_points_at_what_trains(code: str, answers: list[str]) -> None:
    load = 'from unsloth import FastModel\nmodel, tokenizer = FastModel.from_pretrained("m")'
    with pytest.raises(NotebookError) as refused:
        convert_source(text(HEAD, load, code))
    place, expected = answers
    assert refused.value.code == "DDP002"
    assert str(refused.value).startswith(f"{place}: ")
    assert expected in refused.value.message


def test_a_notebook_without_a_model_is_refused_at_its_first_line() -> None:
    with pytest.raises(NotebookError, match=r"^cell 1:1:1: no training was found"):
        convert_source(text("x = 1"))
