"""What every finding says: what happens, then what the script does about it, or what a person is to do."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from nb2ddp.convert import convert_source
from nb2ddp.results import Diagnostic, NotebookError, Severity
from nb2ddp.rules.index import RULES
from tests.notebooks import examples, text

FIXTURES = sorted((Path(__file__).parents[2] / "fixtures").rglob("*.ipynb"))
#: The last line makes a notebook of an example that trains nothing.
EXAMPLES = [
    pytest.param(text(*example.before.split("# %%\n"), "trainer.train()"), id=f"{rule.code}-{number}")
    for rule in RULES
    for number, example in enumerate(examples(rule))
]
NOTEBOOKS = [pytest.param(path.read_text(encoding="utf-8"), id=path.stem) for path in FIXTURES]


def found(notebook: str) -> Iterator[Diagnostic]:
    try:
        yield from convert_source(notebook).diagnostics
    except NotebookError as error:
        yield error.diagnostic


@pytest.mark.parametrize("notebook", [*NOTEBOOKS, *EXAMPLES])
def test_a_message_says_what_happens_and_what_to_do(notebook: str) -> None:
    for each in found(notebook):
        told, _, then = each.message.partition("; the script")
        if each.severity is Severity.NOTE and each.fixed:
            assert then or "script" in told, each.message
        elif each.severity is not Severity.NOTE:
            assert any(mark in each.message for mark in (": ", "; ")), each.message


def test_a_comment_on_the_installation_is_found_where_it_stands() -> None:
    notebook = text("x = 1\n", "\n# !pip install unsloth\n", "from unsloth import FastModel\ntrainer.train()\n")
    assert [str(each.location) for each in found(notebook) if each.code == "DDP306"] == ["cell 2:2:1"]
