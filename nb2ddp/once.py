"""Edits for what may run only once: on one process, or on one process of each machine."""

from __future__ import annotations

import libcst as cst

from nb2ddp.edits import Edit, Guard
from nb2ddp.program import Program

#: Parts of the setup block that `once_a_machine` relies on.
WAIT = frozenset({"wait"})
WAIT_CALL = "PartialState().wait_for_everyone()"


def once_a_machine(program: Program, node: cst.CSTNode) -> tuple[Edit, ...]:
    """Run a statement on each machine's first process; the others wait for it.

    After training the main process is alone, and nothing is needed.
    """
    if not program.runs_before_end(node) or is_guarded(program, node):
        return ()
    statement = program.tree.statement(node)
    return (Guard(statement, statement, f"{program.name('local_rank')} == 0", WAIT_CALL),)


def on_main_process(program: Program, node: cst.CSTNode) -> tuple[Edit, ...]:
    """Run a statement on the main process alone; nobody waits for it."""
    if not program.runs_before_end(node) or is_guarded(program, node):
        return ()
    statement = program.tree.statement(node)
    return (Guard(statement, statement, program.name("is_main_process")),)


def is_guarded(program: Program, node: cst.CSTNode) -> bool:
    """True below a condition on the rank."""
    names = {program.name("local_rank"), program.name("is_main_process")}
    return any(
        isinstance(above, cst.If) and any(name in program.tree.text(above.test) for name in names)
        for above in program.tree.ancestors(node)
    )
