"""Where a notebook trains."""

from __future__ import annotations

import pytest

from nb2ddp.facts.training import Training
from nb2ddp.syntax.tree import Tree

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
    """The source from each offset to the end of its line."""
    return [found.tree.source[offset : found.tree.line_end(offset)] for offset in offsets]


@pytest.mark.parametrize(
    "call",
    [
        "SFTConfig()",
        "trl.SFTConfig()",
        "trl.trainer.sft_config.SFTConfig()",
        "TrainingArguments('out')",
        "Seq2SeqTrainingArguments()",
        "UnslothTrainingArguments()",
        "GRPOConfig()",
    ],
)
def test_arguments(call: str) -> None:
    found = training(f"args = {call}\n")
    assert [found.tree.text(c) for c in found.arguments] == [call]


@pytest.mark.parametrize("call", ["LoraConfig()", "ModelConfig()", "helper.SFTConfig()", "dict()", "Unknown()"])
def test_no_arguments(call: str) -> None:
    assert training(f"args = {call}\n").arguments == []


def test_arguments_of_a_subclass_and_of_an_alias() -> None:
    found = training(
        "class Mine(SFTConfig): pass\nOther = DPOConfig\na = Mine()\nb = Other()\nif False:\n    SFTConfig()\n"
    )
    assert [found.tree.text(c) for c in found.arguments] == ["Mine()", "Other()"]


SIZE = "per_device_train_batch_size = 2"


@pytest.mark.parametrize(
    ("source", "calls"),
    [
        ("unused = SFTConfig(a)\ntrainer = SFTTrainer(args = SFTConfig(b))\n", ["SFTConfig(b)"]),
        ("unused = SFTConfig(a)\nargs = SFTConfig(b)\ntrainer = SFTTrainer(args = args)\n", ["SFTConfig(b)"]),
        (f"kind = getattr(trl, name)\nkind(a)\nkind({SIZE})\n", [f"kind({SIZE})"]),
        (f"kind = SFTConfig if a else DPOConfig\nkind({SIZE})\n", [f"kind({SIZE})"]),
        (f"kind = make()\nkind({SIZE})\n", []),
    ],
)
def test_arguments_that_something_takes_and_of_a_class_that_is_chosen(source: str, calls: list[str]) -> None:
    found = training(source)
    assert [found.tree.text(call) for call in found.arguments] == calls


def test_a_loop_of_the_notebooks_own_goes_backward() -> None:
    found = training("loss.backward()\nloss.item()\n")
    assert [found.tree.text(call) for call in found.backward_calls] == ["loss.backward()"]


CALLS = [
    ("trainer.train()\n", ["trainer.train()"]),
    ("dpo_trainer.train()\n", ["dpo_trainer.train()"]),
    ("trainer_2.train()\n", ["trainer_2.train()"]),
    ("self.trainer.evaluate()\n", ["self.trainer.evaluate()"]),
    ("t = SFTTrainer()\nt.train()\nt.predict(x)\n", ["t.train()", "t.predict(x)"]),
    ("SFTTrainer().train()\n", ["SFTTrainer().train()"]),
    ("class T(Trainer): pass\nt = T()\nt.train()\n", ["t.train()"]),
    ("t = SFTTrainer()\nunsloth_train(t)\n", ["unsloth_train(t)"]),
    ("ts = [SFTTrainer(), SFTTrainer()]\nts[0].train()\n", ["ts[0].train()"]),
    ("def make(): return SFTTrainer()\nt = make()\nt.train()\n", ["t.train()"]),
    # what only switches a mode, or is not of this kind
    ("model.train()\n", []),
    ("t = SFTTrainer()\nmodel.train()\npolicy_net.train()\n", []),
    ("tokenizer.train()\n", []),
    ("model.evaluate()\n", []),
    ("train()\n", []),
    ("trainer.training()\n", []),
    ("trainer.save_model()\n", []),
    ("if False:\n    trainer.train()\n", []),
]


@pytest.mark.parametrize(("source", "expected"), CALLS)
def test_calls(source: str, expected: list[str]) -> None:
    found = training(source)
    assert [found.tree.text(call) for call in found.calls] == expected


EVENTS = [
    ("trainer.train()\nprint(1)\n", ["trainer.train()"], "trainer.train()"),
    ("trainer.train()\nprint(trainer.evaluate())\n", ["trainer.train()", "trainer.evaluate())"], "print(trainer.eval"),
    ("if c:\n    trainer.train()\nprint(1)\n", ["trainer.train()"], "if c:"),
    ("for i in c:\n    trainer.train()\n", ["trainer.train()"], "for i in c:"),
    ("def f():\n    trainer.train()\nf()\nprint(1)\n", ["f()"], "f()"),
    ("def f():\n    g()\ndef g():\n    trainer.train()\nx = f()\n", ["f()"], "x = f()"),
    ("def f():\n    trainer.train()\n    f()\nf()\nf()\n", ["f()", "f()"], "f()"),
    ("class A:\n    def fit(self):\n        trainer.train()\nA().fit()\n", ["A().fit()"], "A().fit()"),
    ("if __name__ == '__main__':\n    trainer.train()\n", ["trainer.train()"], "if __name__"),
    # what trains, handed on as a value
    ("go = trainer.train\nx = 1\ngo()\n", ["go()"], "go()"),
    ("getattr(trainer, 'train')()\nx = 1\n", ["getattr(trainer, 'train')()"], "getattr"),
    ("go = functools.partial(trainer.train)\ngo()\nx = 1\n", ["go()"], "go()"),
    ("def f():\n    trainer.train()\ntimed(f)\nx = 1\n", ["f)"], "timed(f)"),
    ("def f():\n    trainer.train()\nsteps = {'f': f}\nsteps['f']()\nx = 1\n", ["steps['f']()"], "steps['f']()"),
    ("run = lambda: trainer.train()\nx = 1\nrun()\n", ["run()"], "run()"),
    ("class A:\n    def __call__(self):\n        trainer.train()\na = A()\na()\nx = 1\n", ["a()"], "a()"),
    (
        "for step in (trainer.train, trainer.evaluate):\n    step()\nx = 1\n",
        ["trainer.train, trainer.evaluate):", "trainer.evaluate):"],
        "for",
    ),
]


@pytest.mark.parametrize(("source", "events", "last"), EVENTS)
def test_events(source: str, events: list[str], last: str) -> None:
    found = training(source)
    assert lines(found, [found.tree.start(call) for call in found.events]) == events
    assert found.last is not None
    assert found.tree.text(found.last).startswith(last)


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
