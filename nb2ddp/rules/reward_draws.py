"""DDP409: A reward that draws at random gets `@same_draws`: the same numbers on all ranks, others at each call."""

from __future__ import annotations

import re
from collections.abc import Iterator

import libcst as cst

from nb2ddp.facts.program import Program
from nb2ddp.facts.randomness import generator, seeds_itself
from nb2ddp.rules.rule import Finding, rule
from nb2ddp.syntax.edits import Edit, InsertBefore, Wrap
from nb2ddp.syntax.tree import Function

HELPER = "same_draws"
#: What takes its numbers from the operating system.
_NEVER_SEEDED = re.compile(r"secrets\.\w+|uuid\.uuid[14]|os\.urandom|random\.SystemRandom(\.\w+)?")
_SEEDING = {"random": "random.seed", "numpy": "numpy.random.seed", "torch": "torch.manual_seed"}

_ALIKE = "for completions of one prompt; the script draws the same in all"
_APART = (
    "for completions of one prompt: seed it with what all ranks have, such as a column of the data or "
    'kwargs["trainer_state"].global_step'
)


@rule("DDP409")
def reward_drawn_apart(program: Program) -> Iterator[Finding]:
    tree, apart = program.tree, list[cst.Call]()
    for entry in program.rewards.entries:
        calls = program.rewards.calls(entry)
        names = {tree.qualified(call.func) for call in calls}
        drawing = {call: library for call in calls if (library := generator(tree, call)) is not None}
        unseeded = {call: library for call, library in drawing.items() if _SEEDING[library] not in names}
        is_rollout = entry in program.rewards.rollouts
        if is_rollout:  # it samples the completions, which each process shall draw for itself
            unseeded = {call: library for call, library in unseeded.items() if library != "torch"}
        stays = is_rollout or (isinstance(entry, cst.FunctionDef) and entry.asynchronous is not None)
        if unseeded and not stays and not _is_drawn_alike(program, entry):
            message = f"draws other numbers in each process ({tree.text(next(iter(unseeded)).func)}) {_ALIKE}"
            yield Finding(entry, message, (_drawn_alike(entry),))
        alone = [
            call for call in calls if seeds_itself(tree, call) or _NEVER_SEEDED.fullmatch(tree.qualified(call.func))
        ]
        apart += [*alone, *(unseeded if stays else ())]
    for call in dict.fromkeys(apart):
        yield Finding(call, f"{tree.text(call.func)} draws other numbers in each process {_APART}", todo=True)


def _is_drawn_alike(program: Program, entry: Function) -> bool:
    tree, decorators = program.tree, getattr(entry, "decorators", ())
    above = [a.func for a in tree.ancestors(entry) if isinstance(a, cst.Call)]
    return HELPER in [tree.text(node) for node in (*(each.decorator for each in decorators), *above)]


def _drawn_alike(entry: Function) -> Edit:
    if isinstance(entry, cst.FunctionDef):
        return InsertBefore(entry, f"@{HELPER}")
    return Wrap(entry, f"{HELPER}(", ")")
