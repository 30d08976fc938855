"""Edits for what may run only once: on one process, or on one process of each machine."""

from __future__ import annotations

import re

import libcst as cst

from nb2ddp.facts.effects import Effect, acts, effect
from nb2ddp.facts.program import Program
from nb2ddp.facts.writers import below_guards
from nb2ddp.syntax.edits import Edit, Guard, InsertAfter, Wrap
from nb2ddp.syntax.tree import Statement, Tree, small_statements

#: The part of the setup block that waiting relies on.
WAIT = frozenset({"wait"})
#: What `shared` relies on.
SHARE = frozenset({"wait", "run_once"})
_FILE_TEST = re.compile(r"\b(exists|isfile|isdir|is_file|is_dir|listdir|glob)\(")
_YES_OR_NO = re.compile(r"(?:\w+\.)*(?:exists|isfile|isdir|is_file|is_dir)")
_LISTING = re.compile(r"\b(r?glob|listdir|iterdir|scandir|walk)\(")
WAIT_CALL = "PartialState().wait_for_everyone()"


def once_a_machine(program: Program, node: cst.CSTNode, in_whole_job: bool = False) -> tuple[Edit, ...]:
    """Run a statement on each machine's first process, or on the main process alone; the others wait for it.

    Below a test or a `try` the wait follows the outermost one, which every process reaches.
    After training the main process is alone, and nothing is needed.
    """
    if not program.runs_before_end(node) or is_guarded(program, node):
        return ()
    tree = program.tree
    statement = _whole(program, tree.statement(node))
    if program.training.is_joint(statement):
        return ()
    header = f"if {program.name('is_main_process')}" if in_whole_job else f"if {program.name('local_rank')} == 0"
    barred = _conditional(program, statement)
    barred = None if barred is program.training.last else barred
    if barred is statement:
        return (Guard(statement, statement, header, WAIT_CALL),)
    if barred is not None:
        return (Guard(statement, statement, header), InsertAfter(barred, WAIT_CALL))
    waits = [InsertAfter(top, WAIT_CALL) for top in program.run_by(node) if top is not program.training.last]
    return (Guard(statement, statement, header), *waits)


def _conditional(program: Program, statement: Statement, below: tuple[cst.FunctionDef, ...] = ()) -> Statement | None:
    """The statement after which every process can wait: the outermost one that not all may go through, or itself.

    None in a function that not every process calls alike: a method, or one that is handed on or used after training.
    """
    tree = program.tree
    after: Statement = statement
    for above in tree.ancestors(statement):
        if isinstance(above, (cst.If, cst.Try, cst.While)):
            if not _is_script_test(program, above) and not _shares_answer(program, above):
                after = above
        elif isinstance(above, cst.With) and any(suppresses(tree, item) for item in above.items):
            after = above
        elif isinstance(above, cst.For) and not _runs_alike(tree, above):
            after = above
        elif isinstance(above, (cst.Lambda, cst.ClassDef)):
            return None
        elif isinstance(above, cst.FunctionDef):
            early = [each for each in tree.within(above, cst.Return) if tree.start(each) < tree.start(statement)]
            left = any(not _is_left_alike(program, each) for each in early)
            return after if not left and _called_alike(program, above, below) else None
    return after


def _runs_alike(tree: Tree, loop: cst.For) -> bool:
    """True for a loop that no process leaves before another: over no files, which one process may just be writing."""
    values = [loop.iter, *(tree.value(name) for name in tree.within(loop.iter, cst.Name))]
    listed = any(_LISTING.search(tree.text(value)) for value in values)
    return not listed and not any(tree.within(loop, kind) for kind in (cst.Break, cst.Continue))


def _called_alike(program: Program, function: cst.FunctionDef, below: tuple[cst.FunctionDef, ...]) -> bool:
    """True for a function that every process calls at the same places, all before the end of training."""
    calls = program.calls_of(function)
    statements = [program.tree.statement(call) for call in calls]
    return (
        function not in below
        and bool(calls)
        and len(calls) == len(program.uses_of(function))
        and all(program.training.is_before_end(call) for call in calls)
        and all(_conditional(program, each, (*below, function)) is each for each in statements)
        and not any(_is_optional(program.tree, call) for call in calls)
    )


def _is_optional(tree: Tree, call: cst.BaseExpression) -> bool:
    """True for a call that its own statement may leave out, or make elsewhere or later."""
    statement = tree.start(tree.statement(call))
    above = [node for node in tree.ancestors(call) if tree.start(node) >= statement]
    inner = (cst.Lambda, cst.GeneratorExp, cst.IfExp, cst.BooleanOperation)
    made = [node for node in above if isinstance(node, (cst.ListComp, cst.SetComp, cst.DictComp))]
    loops = [loop for each in made for loop in tree.within(each, cst.CompFor)]
    return any(isinstance(node, inner) for node in above) or any(loop.ifs for loop in loops)


def _is_script_test(program: Program, statement: cst.CSTNode) -> bool:
    """True for `if __name__ == "__main__":`."""
    return isinstance(statement, cst.If) and "__name__" in program.tree.text(statement.test)


def _is_left_alike(program: Program, statement: cst.Return) -> bool:
    """True for a return that stands in a test whose answer all processes share, and so all take or none."""
    parents = list(program.tree.ancestors(statement))[:3]
    return any(_shares_answer(program, above) for above in parents)


def _shares_answer(program: Program, test: cst.CSTNode) -> bool:
    """True for a test that is asked once for all processes, so that they take the same branch."""
    return isinstance(test, cst.If) and is_asked_once(program, test) and bool(ask_once(program, test))


def suppresses(tree: Tree, item: cst.WithItem) -> bool:
    """True for `with contextlib.suppress(...)`, which an exception leaves."""
    return isinstance(item.item, cst.Call) and tree.qualified(item.item.func) == "contextlib.suppress"


def is_asked_once(program: Program, test: cst.CSTNode) -> bool:
    """True for a test of the file system, one of whose branches writes and does more: see `ask_once`.

    Where its body returns, what follows in the function is the other branch.
    """
    tree = program.tree
    return (
        isinstance(test, cst.If)
        and bool(_FILE_TEST.search(tree.text(test.test)))
        and tree.is_live(test.body)
        and program.runs_before_end(test)
        and not is_guarded(program, test)
        and not program.installs.covers(test)
        and any(acts(program, call) for call in _in_branches(tree, test) if tree.is_live(call))
        and not all(runs_once(program, line) for line in tree.within(test, cst.SimpleStatementLine))
    )


def _in_branches(tree: Tree, test: cst.If) -> list[cst.Call]:
    """The calls of a test's branches."""
    last = test.body.body[-1]
    function = tree.function(test)
    if function is None or not isinstance((small_statements(last) or (last,))[-1], cst.Return):
        return tree.within(test, cst.Call)
    return [call for call in tree.within(function, cst.Call) if tree.start(call) >= tree.start(test)]


def ask_once(program: Program, test: cst.If) -> tuple[Edit, ...]:
    """Ask the main process alone, so that none comes late and finds what another has made meanwhile."""
    tree = program.tree
    if _conditional(program, test) is not test or tree.within(test.test, cst.NamedExpr):
        return ()
    asked = _run_once(program, test.test, in_whole_job=True)
    if _is_yes_or_no(tree, test.test):
        return (asked,)
    return (Wrap(test.test, f"{asked.before}bool(", f"){asked.after}"),)


def _is_yes_or_no(tree: Tree, test: cst.BaseExpression) -> bool:
    """True for a test whose value is True or False, and so can be sent to other processes."""
    if isinstance(test, cst.BooleanOperation):
        return _is_yes_or_no(tree, test.left) and _is_yes_or_no(tree, test.right)
    if isinstance(test, cst.Call):
        method = test.func.attr.value if isinstance(test.func, cst.Attribute) else tree.qualified(test.func)
        return bool(_YES_OR_NO.fullmatch(method))
    return isinstance(test, cst.Comparison) or (
        isinstance(test, cst.UnaryOperation) and isinstance(test.operator, cst.Not)
    )


def _whole(program: Program, statement: Statement) -> Statement:
    """The largest `if` or `try` around a statement that does nothing but what runs once, as it does."""
    tree = program.tree
    for above in tree.ancestors(statement):
        if isinstance(above, (cst.If, cst.Try)) and not isinstance(tree.parents[above], cst.If):
            if not all(runs_once(program, line) for line in tree.within(above, cst.SimpleStatementLine)):
                break
            if any(tree.within(above, kind) for kind in (cst.SimpleStatementSuite, cst.FunctionDef)):
                break
            acting = [call for call in tree.within(above, cst.Call) if acts(program, call)]
            if len({effect(tree, call) is Effect.SAVE for call in acting}) > 1:
                break  # some once a machine, some once in the whole job
            statement = above
        elif not isinstance(above, (cst.IndentedBlock, cst.If, cst.Else, cst.ExceptHandler, cst.Finally, cst.Try)):
            break
    return statement


def runs_once(program: Program, line: cst.SimpleStatementLine) -> bool:
    """True for a line that writes, fetches or runs something, binds no name and needs no other process."""
    if program.training.is_joint(line):
        return False
    for small in line.body:
        if isinstance(small, cst.Pass):
            continue
        call = small.value if isinstance(small, cst.Expr) else None
        if not isinstance(call, cst.Call):
            return False
        if (
            not program.is_shell(call)
            and effect(program.tree, call) is None
            and program.tree.qualified(call.func) != "print"
        ):
            return False
    return True


def shared(program: Program, call: cst.BaseExpression, in_whole_job: bool = False) -> tuple[Edit, ...]:
    """Make a call on each machine's first process, or on the main process alone, and give the others its value.

    None where not every process need come to the call.
    """
    tree = program.tree
    statement = tree.statement(call)
    if program.training.is_joint(call):
        return ()
    if _is_optional(tree, call) or _conditional(program, statement) is not statement:
        return ()
    return (_run_once(program, call, in_whole_job),)


def _run_once(program: Program, node: cst.BaseExpression, in_whole_job: bool) -> Wrap:
    return Wrap(node, f"{program.name('run_once')}(lambda: ", ", in_whole_job=True)" if in_whole_job else ")")


def wait_after(program: Program, statement: Statement) -> tuple[Edit, ...]:
    """Wait for each other below a statement that every process runs."""
    ends = program.tree.top_statement(statement) is program.training.last
    return () if ends or _conditional(program, statement) is not statement else (InsertAfter(statement, WAIT_CALL),)


def on_main_process(program: Program, node: cst.CSTNode) -> tuple[Edit, ...]:
    """Run a statement on the main process alone; nobody waits for it."""
    if not program.runs_before_end(node) or is_guarded(program, node):
        return ()
    statement = program.tree.statement(node)
    if program.training.is_joint(statement):
        return ()
    return (Guard(statement, statement, f"if {program.name('is_main_process')}"),)


def is_guarded(program: Program, node: cst.CSTNode) -> bool:
    """True below a condition on the rank, in what `run_once` runs, and in a function that one process alone calls."""
    tree = program.tree
    names = {
        program.name("local_rank"),
        program.name("is_main_process"),
        "process_first",
        "process_zero",
        "rank() == 0",
    }
    return any(
        (isinstance(above, cst.Call) and tree.text(above.func) == program.name("run_once"))
        or (isinstance(above, cst.FunctionDef) and above in below_guards(program))
        or (isinstance(above, (cst.If, cst.With)) and any(n in tree.text(above).split(":", 1)[0] for n in names))
        for above in tree.ancestors(node)
    )
