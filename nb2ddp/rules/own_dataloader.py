"""DDP205: a data loader that every process would go through as a whole, or a part of one taken for the whole."""

from __future__ import annotations

import re
from collections.abc import Iterator

import libcst as cst

from nb2ddp.facts.program import Program
from nb2ddp.rules.rule import Example, Finding, Rule

_METHOD = "get_train_dataloader"
_SHARED_OUT = ("get_train_dataloader", "get_eval_dataloader", "get_test_dataloader")
_MESSAGE = (
    "each process goes through all of the data, not through its share: return self.accelerator.prepare(...) of the"
    " loader, as Trainer does"
)
_AROUND = re.compile(r"enumerate|iter|(.*\.)?tqdm|tqdm(\.\w+)*")
_PART = (
    "this loader gives each process its share of the rows, and the main process no more after training: go through a"
    " DataLoader of the data set itself"
)


def find(program: Program) -> Iterator[Finding]:
    tree = program.tree
    for function in tree.of(cst.FunctionDef):
        own = function.name.value == _METHOD and isinstance(tree.scope(function), cst.ClassDef)
        if own and tree.is_live(function) and not any(_shares(call) for call in tree.within(function, cst.Call)):
            yield Finding(function, _MESSAGE, todo=True)
    for assign in tree.of(cst.Assign):
        target = assign.targets[0].target
        if isinstance(target, cst.Attribute) and target.attr.value == _METHOD and tree.is_live(assign):
            yield Finding(assign, _MESSAGE, todo=True)
    for loop in tree.of(cst.For):
        if not tree.within(loop.body, cst.Break):
            yield from _part(program, loop.iter)
    for comprehended in tree.of(cst.CompFor):
        yield from _part(program, comprehended.iter)


def _part(program: Program, node: cst.BaseExpression) -> Iterator[Finding]:
    """A finding where what is gone through is a trainer's loader, or a count or a progress bar around one."""
    while isinstance(node, cst.Call) and _AROUND.fullmatch(program.tree.qualified(node.func)) and node.args:
        node = node.args[0].value
    if not isinstance(node, cst.Call) or not isinstance(node.func, cst.Attribute) or not program.tree.is_live(node):
        return
    if node.func.attr.value in _SHARED_OUT and program.training.is_trainer(node.func.value):
        yield Finding(node, _PART, todo=True)


def _shares(call: cst.Call) -> bool:
    """True for `accelerator.prepare(...)`, and for what the Trainer's own method gives."""
    return isinstance(call.func, cst.Attribute) and call.func.attr.value in ("prepare", "prepare_data_loader", _METHOD)


RULE = Rule(
    code="DDP205",
    name="data-not-shared-out",
    summary="A `get_train_dataloader` of the notebook's own that does not share the data out, and a loop over a loader"
    " that does, get a `TODO` above them.",
    why="Trainer gives each process its share of the data in `get_train_dataloader` (transformers/trainer.py). Without"
    " that all processes train on the same samples. A loop that counts hits over `trainer.get_eval_dataloader()` sees a"
    " part of them: 16 of 32 rows with two processes, after the end of training too (accelerate keeps their number).",
    find=find,
    examples=(
        Example(
            """\
class Mine(Trainer):
    def get_train_dataloader(self):
        return DataLoader(self.train_dataset, shuffle = True)
""",
            f"""\
class Mine(Trainer):
    # TODO[nb2ddp] DDP205: {_MESSAGE}
    def get_train_dataloader(self):
        return DataLoader(self.train_dataset, shuffle = True)
""",
        ),
        Example(
            """\
trainer.train()
for batch in trainer.get_eval_dataloader():
    count(batch)
""",
            f"""\
trainer.train()
# TODO[nb2ddp] DDP205: {_PART}
for batch in trainer.get_eval_dataloader():
    count(batch)
""",
        ),
        Example("batch = next(iter(trainer.get_train_dataloader()))\n"),
        Example(
            """\
class Mine(Trainer):
    def get_train_dataloader(self):
        return self.accelerator.prepare(DataLoader(self.train_dataset))
"""
        ),
    ),
)
