"""DDP208: a training that is resumed where it has just come to its end."""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from nb2ddp.facts.program import Program
from nb2ddp.results import Severity
from nb2ddp.rules.rule import Example, Finding, Rule
from nb2ddp.syntax.tree import Tree, argument

_MESSAGE = (
    "goes on from the last checkpoint of a training that ended above, so nothing is left to train: in a notebook it is"
    " there for one that was cut off; keep one of the two"
)


def find(program: Program) -> Iterator[Finding]:
    tree = program.tree
    calls = [call for call in program.training.calls if call in program.training.events and _trained(tree, call)]
    for number, call in enumerate(calls):
        resumed = argument(call, "resume_from_checkpoint", 0)
        if resumed is None or tree.literal(resumed.value) in (None, False):
            continue
        if any(_goes_on(tree, before, call) for before in calls[:number]):
            yield Finding(call, _MESSAGE)


def _trained(tree: Tree, call: cst.Call) -> cst.BaseExpression | None:
    """The trainer of `trainer.train(...)`."""
    return call.func.value if isinstance(call.func, cst.Attribute) and call.func.attr.value == "train" else None


def _goes_on(tree: Tree, before: cst.Call, call: cst.Call) -> bool:
    """True for two trainings of one trainer, which nothing changes between them, and that both run."""
    first, second = _trained(tree, before), _trained(tree, call)
    if first is None or second is None or tree.text(first) != tree.text(second):
        return False
    if tree.top_statement(before) is tree.top_statement(call):
        return False
    name = tree.text(second)
    start, end = tree.span(before)[1], tree.start(call)
    changed: list[cst.CSTNode] = [each.target for each in tree.of(cst.AssignTarget)]
    changed += [each.target for each in tree.of(cst.AugAssign)]
    between = [tree.text(target) for target in changed if start <= tree.start(target) < end]
    return not any(target == name or target.startswith(f"{name}.") for target in between)


RULE = Rule(
    code="DDP208",
    name="finished-training-resumed",
    summary="A second `train()` of one trainer that resumes the first gets a warning.",
    why="A notebook keeps such a cell for a session that was cut off, and a person runs one of the two. A script runs"
    " both: the second one loads the last checkpoint of a training that is over, on every process.",
    find=find,
    severity=Severity.WARNING,
    examples=(
        Example(
            "trainer.train()\n# %%\n# if it freezes\ntrainer.train(resume_from_checkpoint = True)\n", reported=True
        ),
        Example("trainer.train()\ntrainer.args.num_train_epochs = 2\ntrainer.train(resume_from_checkpoint = True)\n"),
        Example("if resume:\n    trainer.train(resume_from_checkpoint = True)\nelse:\n    trainer.train()\n"),
        Example("trainer.train()\ntrainer.train()\n"),
    ),
)
