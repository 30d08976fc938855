"""Edits for what may run only once: on one process, or on one process of each machine."""

from __future__ import annotations

import libcst as cst

from nb2ddp.edits import Edit, Guard, InsertAfter
from nb2ddp.program import Program

#: The part of the setup block that waiting relies on.
WAIT = frozenset({"wait"})
WAIT_CALL = "PartialState().wait_for_everyone()"


def once_a_machine(program: Program, node: cst.CSTNode, in_whole_job: bool = False) -> tuple[Edit, ...]:
    """Run a statement on each machine's first process, or on the main process alone; the others wait for it.

    In a loop or a function the wait follows the whole top-level statement that runs it. After training the main
    process is alone, and nothing is needed.
    """
    if not program.runs_before_end(node) or is_guarded(program, node):
        return ()
    tree = program.tree
    statement = tree.statement(node)
    header = f"if {program.name('is_main_process')}" if in_whole_job else f"if {program.name('local_rank')} == 0"
    if tree.parents[statement] is tree.module or (tree.function(node) is None and not program.in_loop(node)):
        return (Guard(statement, statement, header, WAIT_CALL),)
    waits = [InsertAfter(top, WAIT_CALL) for top in program.run_by(node) if top is not program.training.last]
    return (Guard(statement, statement, header), *waits)


def first_on_each_machine(program: Program, node: cst.CSTNode) -> tuple[Edit, ...]:
    """Run a statement whose value every process needs on each machine's first process, then on the others."""
    if not program.runs_before_end(node) or is_guarded(program, node):
        return ()
    statement = program.tree.statement(node)
    return (Guard(statement, statement, "with PartialState().local_main_process_first()"),)


def on_main_process(program: Program, node: cst.CSTNode) -> tuple[Edit, ...]:
    """Run a statement on the main process alone; nobody waits for it."""
    if not program.runs_before_end(node) or is_guarded(program, node):
        return ()
    statement = program.tree.statement(node)
    return (Guard(statement, statement, f"if {program.name('is_main_process')}"),)


def is_guarded(program: Program, node: cst.CSTNode) -> bool:
    """True below a condition on the rank, or where the first process of a machine goes first."""
    names = {program.name("local_rank"), program.name("is_main_process"), "process_first"}
    return any(
        isinstance(above, (cst.If, cst.With))
        and any(name in program.tree.text(above).split(":", 1)[0] for name in names)
        for above in program.tree.ancestors(node)
    )
