"""DDP413: A reward, callback or metric from a module of the user's own gets a `TODO`, because it is not read."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator

import libcst as cst

from nb2ddp.facts.execution import Phase
from nb2ddp.facts.handed import handed_on
from nb2ddp.facts.program import Program
from nb2ddp.results import Severity
from nb2ddp.rules.rule import Finding, rule
from nb2ddp.script.modules import is_published

_EVERY = (
    "comes from a module that is not read here, and runs in every process: make sure that only one of them writes its"
    " files, and that a service it asks keeps them apart"
)
_ALL = (
    "come from modules that are not read here, and run in every process: make sure that only one process writes their"
    " files, and that a service they ask keeps the processes apart"
)
_TRAINS = (
    "comes from a module that is not read here: if it trains, it does so on one GPU, as the other processes have ended;"
    " to use all GPUs, train in the notebook"
)
#: A function of a module that trains by its name.
_TRAINING_CALL = re.compile(r"(?i)(\w+\.)+(\w+_)?(train|finetune|fine_tune)(_\w+)?")
_REWARD = "; a reward gets this rank's completions only"


@rule("DDP413", Severity.WARNING, also_alone=True)
def unread_code_in_training(program: Program) -> Iterator[Finding]:
    tree, found = program.tree, defaultdict[str, list[cst.CSTNode]](list)
    sources = [cell.source for cell in program.notebook.cells if cell.kind == "code"]
    lists = _lists(program)
    for name in tree.in_order(handed_on(tree, program.execution.given[0])[1]):
        binding = tree.binding(name)
        full = tree.qualified(tree.extended(name, cst.Attribute))
        is_constant = full.rsplit(".", 1)[-1].isupper() and name not in lists
        if (
            binding is not None
            and binding.imported is not None
            and not is_constant
            and not is_published(full.split(".")[0], sources)
        ):
            found[full.split(".")[0]].append(name)
    for names in found.values():
        *others, last = dict.fromkeys(tree.text(tree.extended(name, cst.Attribute)) for name in names)
        said = f"{', '.join(others)} and {last} {_ALL}" if others else f"{last} {_EVERY}"
        is_reward = not program.rewards.names.isdisjoint(names)
        yield Finding(names[0], f"{said}{_REWARD if is_reward else ''}", todo=True)
    for call in program.execution.calls(_TRAINING_CALL, phase=Phase.AFTER):
        binding, module = tree.binding(call.func), tree.qualified(call.func).partition(".")[0]
        if binding is not None and binding.imported is not None and not is_published(module, sources):
            yield Finding(call, f"{tree.text(call.func)} {_TRAINS}")


def _lists(program: Program) -> set[cst.Name]:
    """The names that rewards are given by or listed with; not those of numbers that calls make them of."""
    tree, found = program.tree, set[cst.Name]()
    for given in program.rewards.given:
        value = tree.value(given)
        call = tree.around(value, cst.Call)
        found.update(name for name in tree.within(value, cst.Name) if tree.around(name, cst.Call) is call)
    return found
