"""DDP205: A `get_train_dataloader` that does not split the data, or a loop over a split loader, gets a `TODO`.

Trainer gives each rank its share of the data in `get_train_dataloader` (transformers/trainer.py). A method of the
notebook's own that omits this trains all ranks on the same samples. A loop over `trainer.get_eval_dataloader()` that
counts hits sees only a part of them: 16 of 32 rows with two processes. A loader made after the last training returns
all rows (DDP401).
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import libcst as cst

from nb2ddp.facts.program import Program
from nb2ddp.rules.rule import Example, Finding, Rule
from nb2ddp.syntax.tree import Tree, method

_METHOD = "get_train_dataloader"
_SHARED_OUT = ("get_train_dataloader", "get_eval_dataloader", "get_test_dataloader")
#: `accelerator.prepare(...)`, and what the Trainer's own method gives.
_SHARING = ("prepare", "prepare_data_loader", _METHOD)
_MESSAGE = (
    "each rank trains on all of the data, not on its share: return self.accelerator.prepare(...) of the loader, "
    "as Trainer does"
)
_AROUND = re.compile(r"enumerate|iter|(.*\.)?tqdm|tqdm(\.\w+)*")
_PART = "this loader gives each rank only its share of the rows: use a DataLoader of the data set itself"


def find(program: Program) -> Iterator[Finding]:
    tree = program.tree
    for function in tree.live(cst.FunctionDef):
        own = function.name.value == _METHOD and isinstance(tree.scope(function), cst.ClassDef)
        if own and not any(method(call) in _SHARING for call in tree.within(function, cst.Call)):
            yield Finding(function, _MESSAGE, todo=True)
    for assign in filter(tree.is_live, tree.setting(_METHOD)):
        yield Finding(assign, _MESSAGE, todo=True)
    loops = [loop.iter for loop in tree.live(cst.For) if not tree.within(loop.body, cst.Break)]
    for node in [*loops, *(comprehended.iter for comprehended in tree.live(cst.CompFor))]:
        loader = next((call for call in _loaders(tree, node) if _is_trainers(program, call)), None)
        if loader is not None:  # one that is made before the end of training is a share after it too
            yield Finding(node if program.execution.runs(node) else loader, _PART, todo=True)


def _is_trainers(program: Program, call: cst.Call) -> bool:
    return isinstance(call.func, cst.Attribute) and program.training.is_trainer(call.func.value)


def _loaders(tree: Tree, node: cst.BaseExpression) -> list[cst.Call]:
    """The calls that give the loader which is gone through, by itself, or in a count or a progress bar."""
    while isinstance(node, cst.Call) and _AROUND.fullmatch(tree.qualified(node.func)) and node.args:
        node = node.args[0].value
    made = tree.values(node)
    return [each for each in made if isinstance(each, cst.Call) and method(each) in _SHARED_OUT]


RULE = Rule(
    name="data-not-shared-out",
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
for batch in trainer.get_eval_dataloader():
    count(batch)
loader = trainer.get_eval_dataloader()
trainer.train()
for batch in loader:
    count(batch)
""",
            f"""\
# TODO[nb2ddp] DDP205: {_PART}
for batch in trainer.get_eval_dataloader():
    count(batch)
# TODO[nb2ddp] DDP205: {_PART}
loader = trainer.get_eval_dataloader()
trainer.train()
for batch in loader:
    count(batch)
""",
        ),
        Example("trainer.train()\nfor batch in trainer.get_eval_dataloader():\n    count(batch)\n"),
        Example(
            """\
def tokens(loader):
    return sum(batch["input_ids"].numel() for batch in loader)
loader = trainer.get_train_dataloader()
total = tokens(loader)
trainer.train()
""",
            f"""\
def tokens(loader):
    # TODO[nb2ddp] DDP205: {_PART}
    return sum(batch["input_ids"].numel() for batch in loader)
loader = trainer.get_train_dataloader()
total = tokens(loader)
trainer.train()
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
