"""DDP322: A server that runs until a person stops it gets a `TODO`; one beside the script ends with it."""

from __future__ import annotations

import re
from collections.abc import Iterator

import libcst as cst

from nb2ddp.facts.effects import Does
from nb2ddp.facts.handed import handed_on
from nb2ddp.facts.program import Program
from nb2ddp.rules.rule import Finding, rule, shown
from nb2ddp.syntax.edits import Edit, InsertAfter, SetKeyword, Wrap
from nb2ddp.syntax.tree import Function, Tree, keyword

_BESIDE = re.compile(r"threading\.Thread|multiprocessing(\.\w+)*\.Process")
_SERVES = "serves until a person stops it"
_NO_TRAINING = f"{_SERVES}, so no training begins: take it out, or start it as a program of its own, before the job"
_LATE = f"{_SERVES}, and what stands below waits for that: move it to the end of the notebook"
_LAST = f"{_SERVES}, so the job does not end by itself"
_OUTLIVES = "starts a program that would go on after the job; the script ends it"
_HOLDS = "makes a server that would keep the job from ending; in the script it ends with the job"
#: What waits for a program, or ends it.
_ENDING = frozenset({"communicate", "kill", "pid", "send_signal", "terminate", "wait"})


@rule("DDP322")
def served_until_stopped(program: Program) -> Iterator[Finding]:
    beside = set[Function | None]()
    for call in program.execution.calls(_BESIDE):
        beside.update(serving := _serves(program, call))
        is_held = keyword(call, "daemon") is None and not program.tree.attributes("daemon")
        if serving and is_held and program.execution.runs(call):
            yield Finding(call, f"{shown(program, call)} {_HOLDS}", (SetKeyword(call, "daemon", "True"),))
    for call in program.execution.calls("subprocess.Popen"):
        if edits := _ended(program.tree, call):
            yield Finding(call, f"{shown(program, call)} {_OUTLIVES}", edits)
    for call in program.execution.calls(does=Does.SERVE):
        if program.execution.phase(call) and program.tree.owner(call) not in beside:
            yield _server(program, call)


def _ended(tree: Tree, call: cst.Call) -> tuple[Edit, ...]:
    """What ends a program with the script; nothing where the notebook waits for it, ends it, or keeps it elsewhere."""
    above, statement = tree.parents[call], tree.statement(call)
    if keyword(call, "shell") is not None:  # whose process is not that of the program
        return ()
    if isinstance(above, cst.Expr):
        return (Wrap(call, "atexit.register(", ".terminate)"),)
    target = above.targets[0].target if isinstance(above, cst.Assign) else None
    if not isinstance(target, cst.Name) or not isinstance(statement, cst.SimpleStatementLine):
        return ()
    asked = {tree.parents[use] for use in tree.loads(target.value)}
    if any(isinstance(each, cst.Attribute) and each.attr.value in _ENDING for each in asked):
        return ()
    return (InsertAfter(statement, f"atexit.register({target.value}.terminate)"),)


def _serves(program: Program, beside: cst.Call) -> list[Function | None]:
    """The functions that serve in a thread or a process; None for one that the notebook does not define."""
    target = keyword(beside, "target")
    functions = handed_on(program.tree, [target.value])[0] if target is not None else []
    found: list[Function | None] = [each for each in functions if program.execution.has(each, Does.SERVE)]
    return [*found, None] if target is not None and program.effects.is_server(target.value) else found


def _server(program: Program, call: cst.Call) -> Finding:
    """A server at its place."""
    tree = program.tree
    places = tree.run_from(call, tree.uses)
    end = max((tree.span(tree.top_statement(place))[1] for place in places), default=tree.start(call))
    follows = any(tree.is_live(each) and tree.start(each) >= end for each in tree.module.body)
    outcome = _NO_TRAINING if program.execution.runs(call) else _LATE if follows else _LAST
    return Finding(call, f"{shown(program, call)} {outcome}", todo=True)
