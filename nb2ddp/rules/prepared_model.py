"""DDP218: A model that goes to a Trainer is not handed to `accelerator.prepare` before."""

from __future__ import annotations

import re
from collections.abc import Iterator

from nb2ddp.facts.program import Program
from nb2ddp.rules.rule import Finding, rule
from nb2ddp.syntax.edits import Remove, Replace
from nb2ddp.syntax.tree import argument

_PREPARE = re.compile(r".*accelerator\.prepare(_model)?")
_MESSAGE = "Trainer prepares its model itself, and stops at one that is prepared already"


@rule("DDP218")
def model_prepared_twice(program: Program) -> Iterator[Finding]:
    tree = program.tree
    models = [argument(trainer, "model", 0) for trainer in program.training.trainers]
    names = {tree.text(model.value) for model in models if model is not None}
    for call in program.execution.calls(_PREPARE):
        given, statement = [tree.text(each.value) for each in call.args if each.keyword is None], tree.statement(call)
        if names.isdisjoint(given) and names.isdisjoint(tree.binds(statement)):
            continue
        if len(given) > 1:
            yield Finding(call, f"{_MESSAGE}: take the model out of this call", todo=True)
        else:
            is_line = tree.text(statement).strip() == f"{given[0]} = {tree.text(call)}"
            edit = Remove(statement) if is_line else Replace(call, given[0])
            yield Finding(call, f"{_MESSAGE}; the script leaves that to it", (edit,))
