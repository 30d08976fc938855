"""DDP408: A training that a rank may skip or leave gets a `TODO`: by a test of the rank, or a `try`."""

from __future__ import annotations

import re
from collections.abc import Iterator

import libcst as cst

from nb2ddp.facts.execution import Who
from nb2ddp.facts.flow import suppresses
from nb2ddp.facts.program import Program
from nb2ddp.rules.rule import Finding, rule
from nb2ddp.syntax.tree import Tree, small_statements

_RANK = "only some ranks reach the joint step below, and wait for the others forever: move it out of the condition"
_TRY = "if this fails in one process, the others wait for it until the job times out: let the exception end the script"

_EXIT = re.compile(r"(sys\.|os\._)?exit\((?!0?\))")


@rule("DDP408")
def trained_by_some_processes(program: Program) -> Iterator[Finding]:
    tree, training = program.tree, program.training
    for test in tree.of(cst.If):
        is_asked = program.execution.asks_rank(test.test) is not Who.EVERY and program.execution.runs(test)
        if is_asked and training.is_joint(test.body):
            yield Finding(test, _RANK, todo=True)
    for call in dict.fromkeys([*training.calls, *training.events]):
        if any(_goes_on(tree, above, call) for above in tree.ancestors(call)):
            yield Finding(call, _TRY, todo=True)


def _goes_on(tree: Tree, above: cst.CSTNode, call: cst.CSTNode) -> bool:
    """True for a `try` around a call, or a `with suppress(...)`, that lets the script go on where the call fails."""
    if isinstance(above, cst.With):
        return any(suppresses(tree, item) for item in above.items)
    is_tried = isinstance(above, cst.Try) and call in tree.within(above.body, type(call))
    return is_tried and not all(_ends(tree, each) for each in cst.ensure_type(above, cst.Try).handlers)


def _ends(tree: Tree, handler: cst.ExceptHandler) -> bool:
    """True for a handler whose last line raises, or ends the process with a code of failure."""
    last = handler.body.body[-1]
    line = (small_statements(last) or (last,))[-1]
    return isinstance(line, cst.Raise) or _EXIT.match(tree.text(line)) is not None
