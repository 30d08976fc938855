"""The places where a notebook trains."""

from __future__ import annotations

import pytest

from nb2ddp.facts.training import Training
from nb2ddp.syntax.tree import Tree
from tests.examples import table

IMPORTS = """\
import trl
from transformers import Seq2SeqTrainingArguments, Trainer, TrainingArguments
from trl import DPOConfig, GRPOConfig, ModelConfig, SFTConfig, SFTTrainer
from unsloth import UnslothTrainer, UnslothTrainingArguments, unsloth_train
from peft import LoraConfig
from mine import helper
"""


def training(source: str) -> Training:
    return Training(Tree(IMPORTS + source))


def lines(found: Training, offsets: list[int]) -> list[str]:
    """Return the source from each offset to the end of its line."""
    return [found.tree.source[offset : found.tree.line_end(offset)] for offset in offsets]


def test_arguments_of_a_subclass_and_of_an_alias() -> None:
    found = training(
        "class Mine(SFTConfig): pass\nOther = DPOConfig\na = Mine()\nb = Other()\nif False:\n    SFTConfig()\n"
    )
    assert [found.tree.text(c) for c in found.arguments] == ["Mine()", "Other()"]


@table(__file__, "arguments")
def test_arguments(code: str, answers: list[str]) -> None:
    found = training(f"{code}\n")
    assert [found.tree.text(call) for call in found.arguments] == answers


def test_a_loop_of_the_notebooks_own_goes_backward() -> None:
    found = training("loss.backward()\nloss.item()\n")
    assert [found.tree.text(call) for call in found.backward_calls] == ["loss.backward()"]


@table(__file__, "calls")
def test_calls(code: str, answers: list[str]) -> None:
    found = training(f"{code}\n")
    assert [found.tree.text(call) for call in found.calls] == answers


@table(__file__, "events")
def test_events(code: str, answers: list[str]) -> None:
    found = training(f"{code}\n")
    *events, last = answers
    assert lines(found, [found.tree.start(call) for call in found.events]) == events
    assert found.last is not None
    assert f"last: {found.tree.text(found.last)}".startswith(last)


@pytest.mark.parametrize(
    "source",
    ["", "print(1)\n", "def f():\n    trainer.train()\n", "if False:\n    trainer.train()\n", "model.train()\n"],
)
def test_nothing_trains(source: str) -> None:
    found = training(source)
    assert found.events == []
    assert found.last is None
    assert found.end == -1
    assert not found.is_before_end(found.tree.module.body[0])


def test_before_and_after_the_end() -> None:
    found = training("a = 1\nif c:\n    trainer.train()\n    b = 2\nd = 3\n")
    before, last, after = found.tree.module.body[-3:]
    assert found.is_before_end(before)
    assert found.is_before_end(last)
    assert not found.is_before_end(after)


def test_a_class_of_the_notebooks_own_is_a_trainer_only_by_its_base() -> None:
    found = training("class FakeTrainer:\n    args = None\nclass Mine(SFTTrainer):\n    pass\nFakeTrainer()\nMine()\n")
    assert [found.tree.text(call) for call in found.trainers] == ["Mine()"]
