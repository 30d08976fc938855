"""DDP205: a data loader that every process would go through as a whole."""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from nb2ddp.model import Severity
from nb2ddp.program import Finding, Program
from nb2ddp.rule import Example, Rule

_METHOD = "get_train_dataloader"
_MESSAGE = (
    "each process would go through all of the data: return self.accelerator.prepare(...) of the loader, as Trainer does"
)


def find(program: Program) -> Iterator[Finding]:
    tree = program.tree
    for function in tree.of(cst.FunctionDef):
        own = function.name.value == _METHOD and isinstance(tree.scope(function), cst.ClassDef)
        if own and not any(_shares(call) for call in tree.within(function, cst.Call)):
            yield Finding(function, _MESSAGE, todo=True)
    for assign in tree.of(cst.Assign):
        target = assign.targets[0].target
        if isinstance(target, cst.Attribute) and target.attr.value == _METHOD and tree.is_live(assign):
            yield Finding(assign, _MESSAGE, todo=True)


def _shares(call: cst.Call) -> bool:
    """True for `accelerator.prepare(...)`, and for what the Trainer's own method gives."""
    return isinstance(call.func, cst.Attribute) and call.func.attr.value in ("prepare", "prepare_data_loader", _METHOD)


RULE = Rule(
    code="DDP205",
    name="data-not-shared-out",
    summary="A `get_train_dataloader` of the notebook's own that does not share the data out gets a `TODO` above it.",
    why="Trainer gives each process its share of the data in `get_train_dataloader` (transformers/trainer.py). Without"
    " that all processes train on the same samples.",
    find=find,
    severity=Severity.WARNING,
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
class Mine(Trainer):
    def get_train_dataloader(self):
        return self.accelerator.prepare(DataLoader(self.train_dataset))
"""
        ),
    ),
)
