"""DDP218: A model that goes to a Trainer is not handed to `accelerator.prepare` before.

On one GPU this leaves the model as it is. With several processes it wraps the model in DistributedDataParallel, and a
Trainer, which prepares its model itself, stops at the wrapped one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from nb2ddp.facts.program import Program
from nb2ddp.rules.rule import Example, Finding, Rule
from nb2ddp.syntax.edits import Remove, Replace
from nb2ddp.syntax.tree import argument

_PREPARE = re.compile(r".*accelerator\.prepare(_model)?")
_MESSAGE = "Trainer prepares its model itself, and stops at one that is prepared already"


def find(program: Program) -> Iterator[Finding]:
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


_TRAIN = "from trl import SFTTrainer\ntrainer = SFTTrainer(model = model, train_dataset = dataset)\n"

RULE = Rule(
    name="model-prepared-twice",
    find=find,
    examples=(
        Example(
            "accelerator = Accelerator()\nmodel = load()\nmodel = accelerator.prepare_model(model)\n" + _TRAIN,
            "accelerator = Accelerator()\nmodel = load()\n" + _TRAIN,
        ),
        Example("model = accelerator.prepare(load())\n" + _TRAIN, "model = load()\n" + _TRAIN),
        Example(
            "model, rows = accelerator.prepare(model, rows)\n" + _TRAIN,
            f"# TODO[nb2ddp] DDP218: {_MESSAGE}: take the model out of this call\n"
            "model, rows = accelerator.prepare(model, rows)\n" + _TRAIN,
        ),
        Example("judge = accelerator.prepare(judge)\n" + _TRAIN),
    ),
)
