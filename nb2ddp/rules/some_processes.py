"""DDP408: A joint step that a rank may skip, leave or repeat gets a `TODO`: by a condition, a `try`, a
clock, a retry.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import libcst as cst

from nb2ddp.facts.effects import Does
from nb2ddp.facts.execution import Who
from nb2ddp.facts.flow import suppresses
from nb2ddp.facts.program import Program
from nb2ddp.facts.waiting import starts_engine
from nb2ddp.rules.rule import Finding, rule
from nb2ddp.syntax.arguments import passed
from nb2ddp.syntax.tree import Tree

_EXIT = re.compile(r"(sys\.|os\._)?exit|quit")
#: What a callback tells the trainer to do (transformers, `TrainerControl`).
_CONTROL = ("should_training_stop", "should_epoch_stop", "should_save", "should_evaluate")
_RANK = "only some ranks reach the joint step below, and wait for the others forever: move it out of the condition"
_ENGINE = (
    "ranks start their engines together: those that reach this load wait for the others until the job times out; "
    "move it out of the condition"
)
_TRY = "if this fails in one process, the others wait for it until the job times out: let the exception end the script"
_RETRIED = (
    "a process whose step fails, such as for lack of memory, begins again alone, and the others wait for it until the "
    "job times out: train once, with a batch that fits"
)
_UNTESTED = (
    "a rank on which this fails has no rows to evaluate on, and the others wait for it until the job times out: "
    "let the exception end the script"
)
#: What calls a function again that failed.
_RETRY = re.compile(r"accelerate(\.\w+)*\.find_executable_batch_size|(tenacity|retrying|retry)\.retry|backoff\.on_\w+")
_INTERRUPTED = (
    "Ctrl-C reaches the ranks at different steps, and the launcher ends those that wait for others: rely on "
    "checkpoints, not on what follows here"
)
_STOPS = (
    "one rank may stop while another trains on, and they wait for each other forever; decide by the step, or let "
    "the main process decide for all"
)
_CLOCKS = f"each process asks its own clock: {_STOPS}"
_FILES = f"each process looks for the file at another time: {_STOPS}"


@rule("DDP408")
def trained_by_some_processes(program: Program) -> Iterator[Finding]:
    for look in (_tested, _tried, _retried, _untested, _stopped):
        for node, message in look(program):
            yield Finding(node, message, todo=True)


def _tested(program: Program) -> Iterator[tuple[cst.CSTNode, str]]:
    """Tests of the rank around a step of all processes."""
    tree = program.tree
    for test in tree.of(cst.If):
        if program.execution.asks_rank(test.test) is Who.EVERY or not program.execution.runs(test):
            continue
        if any(starts_engine(tree, call) for call in tree.within(test.body, cst.Call)):
            yield test, _ENGINE
        elif program.training.is_joint(test.body):
            yield test, _RANK


def _tried(program: Program) -> Iterator[tuple[cst.CSTNode, str]]:
    """Trainings in a `try`, or a `with suppress(...)`, after which the script goes on."""
    tree = program.tree
    for call in dict.fromkeys([*program.training.calls, *program.training.events]):
        for above in tree.ancestors(call):
            caught: list[cst.BaseExpression | None] = []
            if isinstance(above, cst.Try) and call in tree.within(above.body, type(call)):
                caught = [handler.type for handler in above.handlers if not _ends(tree, handler)]
            elif isinstance(above, cst.With):
                caught = [item.item for item in above.items if suppresses(tree, item)]
            if caught:
                by_hand = all(each is not None and tree.qualified(each) == "KeyboardInterrupt" for each in caught)
                yield call, _INTERRUPTED if by_hand else _TRY
                break


def _retried(program: Program) -> Iterator[tuple[cst.CSTNode, str]]:
    """Functions that train, and are called again where they fail."""
    tree = program.tree
    for function in (each for each in tree.of(cst.FunctionDef) if program.training.is_joint(each.body)):
        retries = [getattr(each.decorator, "func", each.decorator) for each in function.decorators]
        calls = (tree.around(use, cst.Call) for use in tree.named(function))
        retries += [call.func for call in calls if call is not None]
        if any(_RETRY.fullmatch(tree.qualified(each)) for each in retries):
            yield function, _RETRIED


def _untested(program: Program) -> Iterator[tuple[cst.CSTNode, str]]:
    """Handlers of exceptions that leave a trainer without rows to evaluate on."""
    tree = program.tree
    given = [passed(tree, trainer, "eval_dataset") for trainer in program.training.trainers]
    names = [each.value for each in given if each is not None and isinstance(each.value, cst.Name)]
    for bound in (bound for name in names for bound in tree.bindings(name.value, name)):
        is_none = isinstance(bound.node, cst.Assign) and tree.text(bound.node.value) == "None"
        if is_none and tree.around(bound.node, cst.ExceptHandler) is not None:
            yield bound.node, _UNTESTED


def _ends(tree: Tree, code: cst.CSTNode) -> bool:
    """True for code that always raises, or ends the process with a code by which the launcher ends the others."""
    if isinstance(code, cst.Raise):
        return True
    if isinstance(code, cst.Expr):
        call = code.value
        if not isinstance(call, cst.Call) or not _EXIT.fullmatch(tree.qualified(call.func)):
            return False
        return bool(call.args) and tree.literal(call.args[0].value) not in (0, None)
    if isinstance(code, cst.If):
        return code.orelse is not None and _ends(tree, code.body) and _ends(tree, code.orelse)
    if isinstance(code, cst.Try):
        closes = code.finalbody is not None and _ends(tree, code.finalbody)
        return closes or (_ends(tree, code.body) and all(_ends(tree, each) for each in code.handlers))
    if isinstance(code, (cst.IndentedBlock, cst.SimpleStatementSuite, cst.SimpleStatementLine)):
        return any(_ends(tree, each) for each in code.body)
    return isinstance(code, (cst.Else, cst.Finally, cst.ExceptHandler, cst.With)) and _ends(tree, code.body)


def _stopped(program: Program) -> Iterator[tuple[cst.CSTNode, str]]:
    """Conditions that end a training by what one process alone sees: its clock, or a file."""
    tree, execution = program.tree, program.execution
    around = {above for node in (*program.training.calls, *program.training.events) for above in tree.ancestors(node)}
    loops = [loop for kind in (cst.While, cst.For) for loop in tree.of(kind) if loop in around]
    leaving = [node for loop in loops for kind in (cst.Break, cst.Return) for node in tree.within(loop, kind)]
    steering = [assign for name in _CONTROL for assign in tree.setting(name)]
    conditions: list[cst.While | cst.If] = [loop for loop in loops if isinstance(loop, cst.While)]
    for condition in [*conditions, *_tests(tree, [*leaving, *steering])]:
        if execution.unlike(condition.test):
            yield condition, _CLOCKS
    for test in _tests(tree, steering):
        if execution.has(test.test, Does.TEST):
            yield test, _FILES


def _tests(tree: Tree, nodes: Sequence[cst.CSTNode]) -> list[cst.If]:
    """The conditions that live nodes stand under."""
    live = [node for node in nodes if tree.is_live(node)]
    return list(dict.fromkeys(above for node in live for above in tree.ancestors(node) if isinstance(above, cst.If)))
