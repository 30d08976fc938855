"""Decide where a call runs that not every process may make.

There are three forms: a guard around a line that leaves nothing in memory, `run_once` around a value that all processes
reach, and a guard around the calls of a function that only writes. If none applies, a person must decide.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property

import libcst as cst

from nb2ddp.facts.commands import kills_job
from nb2ddp.facts.effects import WANDB, Does, gives_an_object, made_by
from nb2ddp.facts.execution import Execution, Phase, Who
from nb2ddp.facts.flow import argument_of, called, makers, reached
from nb2ddp.facts.services import called_on
from nb2ddp.facts.traces import Traces
from nb2ddp.syntax.arguments import constant
from nb2ddp.syntax.edits import Edit, Guard, InsertAfter, Wrap
from nb2ddp.syntax.tree import Statement

IN_TURN = "with PartialState().local_main_process_first()"
WAIT_CALL = "PartialState().wait_for_everyone()"
_APPLIES = re.compile(r"map|(.*\.)(map|filter|apply|applymap|submit|imap|imap_unordered|starmap)", re.DOTALL)
#: Builtins that give equal results for equal values in all processes.
_BUILTINS = frozenset("abs all any bool float int isinstance len max min round sorted str sum".split())
#: Expressions that may be skipped, or run elsewhere or later.
_OPTIONAL = (cst.Lambda, cst.GeneratorExp, cst.IfExp, cst.BooleanOperation)


@dataclass(frozen=True)
class Decision:
    """The place of one call that acts.

    Attributes:
        call: the call.
        place: the call that is placed: the call itself, or the first call of its function if that only writes.
        edits: the edits that place it; none if a person must decide.
    """

    call: cst.Call
    place: cst.Call
    edits: tuple[Edit, ...]


class Placement:
    """Edits that place code that not every process may run.

    Args:
        execution: which process runs what in the notebook as written.
    """

    def __init__(self, execution: Execution) -> None:
        self.execution, self.tree, self.training = execution, execution.tree, execution.training
        self._traces = Traces(execution.training, execution.effects)

    # -- decisions ------------------------------------------------------------------------------------------

    @cached_property
    def decisions(self) -> list[Decision]:
        """The place of each Python call that acts while all processes run; each line occurs once."""
        found, placed = dict[cst.CSTNode, Decision](), set[cst.CSTNode]()
        for call in self._acting:
            above = [call, *self.tree.ancestors(call)]
            if placed.isdisjoint(above) and (made := self._decide(call)) is not None:
                nodes = _placed_by(made.edits)
                placed.update(nodes or [call])
                found.setdefault(self._statement(call) if not nodes else nodes[0], made)
        return list(found.values())

    @cached_property
    def _acting(self) -> list[cst.Call]:
        """The Python calls that act while all processes run; a separate rule handles shell commands."""
        calls, form = self.execution.calls(does=Does.ACT, phase=Phase.TOGETHER), self.execution.source.form
        commands = self.execution.effects.command
        return [call for call in calls if form(call) is None and not kills_job(commands(call))]

    def _decide(self, call: cst.Call) -> Decision | None:
        does, function = self.execution.does(call), self.tree.function(call)
        if function is not None and (callers := self._writers.get(function)):
            in_whole_job = self._saves(function) == {True}
            return Decision(call, callers[0], tuple(e for each in callers for e in self.once(each, in_whole_job)))
        if self.runs_alone(call) or self._may_run_everywhere(call):
            return None
        # Only the main process has a run of Weights & Biases.
        has_run = does is Does.FETCH and made_by(self.tree, call, WANDB) not in ("", "wandb.Api")
        in_whole_job = does is Does.SAVE or has_run
        if edits := self.once(call, in_whole_job):
            return Decision(call, call, edits)
        if does is Does.WRITE and self._statement(call) is not self.tree.statement(call):
            return None  # the call that opens the file is placed
        return Decision(call, call, () if gives_an_object(self.tree, call) else self.shared(call, in_whole_job))

    def _may_run_everywhere(self, call: cst.Call) -> bool:
        """Return whether a call makes a folder that may exist, or ends programs that the same process started."""
        is_folder = self.tree.text(call.func).endswith(("makedirs", ".mkdir"))
        may_exist = is_folder and constant(self.tree, call, "exist_ok") is True
        return may_exist or bool(self.execution.does(call) & Does.KILL and self.execution.runs(call, Phase.DURING))

    # -- edits ----------------------------------------------------------------------------------------------

    def once(self, node: cst.CSTNode, in_whole_job: bool = False) -> tuple[Edit, ...]:
        """Run a whole line on each machine's first process, or only on the main process; the others wait for it.

        The result is empty if the line leaves anything in memory, unless the node is a statement, or if only one
        process runs the line already.
        """
        must = not isinstance(node, cst.Call)
        whole = self.tree.top_statement if self.tree.function(node) is None else self._statement
        for line in (whole(node), self._statement(node)) if self._is_shared_work(node) else ():
            if self._leaves_nothing(line) or (must and line is self.tree.statement(node)):
                return self._guarded(line, in_whole_job)
        return ()

    def _leaves_nothing(self, line: Statement) -> bool:
        """Return whether one process can run a line for all: no part of it needs a separate place."""
        functions = [each for each in called(self.tree, line) if each not in self._below_guards]
        others = isinstance(line, cst.FunctionDef) or self.training.is_collective(line) or self._traces.leaves(line)
        acts = any(self.execution.has(each, Does.ACT | Does.ASK) for each in functions)
        return not (others or acts) and len(self._saves(line)) < 2

    def _guarded(self, line: Statement, in_whole_job: bool = False) -> tuple[Edit, ...]:
        """Put a statement under a guard; the others wait directly after it, or after the block that not all enter."""
        header = "if is_main_process" if in_whole_job else "if local_rank == 0"
        if self._comes_by(line):
            return (Guard(line, line, header, "" if self._ends_training(line) else WAIT_CALL),)
        tops = dict.fromkeys(map(self.tree.top_statement, self.tree.run_from(line, self._calls)))
        waits = [top for top in tops if self.training.is_before_end(top) and top is not self.training.last]
        return (Guard(line, line, header), *(InsertAfter(top, WAIT_CALL) for top in waits))

    def _ends_training(self, line: Statement) -> bool:
        """Return whether a line follows the last training in its block: after the block all processes wait anyway."""
        late = all(self.tree.start(event) < self.tree.start(line) for event in self.training.events)
        again = self.tree.around(line, cst.For, cst.While, cst.FunctionDef) is not None
        return late and not again and any(above is self.training.last for above in self.tree.ancestors(line))

    def shared(self, value: cst.BaseExpression, in_whole_job: bool = False) -> tuple[Edit, ...]:
        """Evaluate an expression on each machine's first process, or on the main one, and send its value to the others.

        The result is empty if not every process reaches it. In a `try`, it fails on all processes; elsewhere, a failure
        ends the job.
        """
        if self.training.is_collective(value) or not self._comes_by(value, fails_alike=True):
            return ()
        run = "run_once" if in_whole_job else "run_once_on_each_machine"
        if self._is_tried(value):
            return (Wrap(value, "run_once_in_try(lambda: ", ")" if in_whole_job else f", {run})"),)
        return (Wrap(value, f"{run}(lambda: ", ")"),)

    def in_turn(self, call: cst.Call) -> tuple[Guard, ...]:
        """Let one process of each machine make a call before the others; empty if not all processes reach the call."""
        lines = dict.fromkeys(map(self.tree.statement, self.tree.run_from(call, self._calls)))
        may = all(
            self._comes_by(line) and self._is_shared_work(line) and not self.training.is_collective(line)
            for line in lines
        )
        return tuple(Guard(line, line, IN_TURN) for line in lines) if may else ()

    def on_main_process(self, node: cst.CSTNode) -> tuple[Edit, ...]:
        """Run a statement only on the main process; the others do not wait for it."""
        statement = self.tree.statement(node)
        if not self._is_shared_work(node) or self.training.is_collective(statement):
            return ()
        return (Guard(statement, statement, "if is_main_process"),)

    def alone(self, call: cst.Call) -> dict[cst.CSTNode, tuple[Edit, ...]]:
        """Let one process make an object that no other uses, and call its methods in separate statements.

        The result is empty if another process needs the object.
        """
        tree, assign = self.tree, self.tree.parents[call]
        target = assign.targets[0].target if isinstance(assign, cst.Assign) and len(assign.targets) == 1 else None
        if not isinstance(target, cst.Name) or not tree.is_top_level(assign):
            return {}
        uses = tree.bound_uses(assign)
        others = [use for use in uses if self.execution.runs(use) and not self.runs_alone_as_placed(use)]
        lines = [tree.parents[called] for use in others if (called := called_on(tree, use)) is not None]
        if len(lines) < len(others) or not all(isinstance(line, cst.Expr) for line in lines):
            return {}
        return {node: self._guarded(tree.statement(node)) for node in (call, *lines)}

    # -- which process runs what, as placed -----------------------------------------------------------------

    def runs_alone(self, node: cst.CSTNode) -> bool:
        """Return whether one process runs a node: below a test of the rank, or in a function that one process calls."""
        return not self._below_guards.isdisjoint(self.tree.ancestors(node)) or self.execution.who(node) is not Who.EVERY

    def runs_alone_as_placed(self, node: cst.CSTNode) -> bool:
        """Return whether one process runs a node in the notebook or in the script."""
        return self.runs_alone(node) or not self._placed.isdisjoint((node, *self.tree.ancestors(node)))

    @cached_property
    def _placed(self) -> frozenset[cst.CSTNode]:
        return frozenset(node for made in self.decisions for node in _placed_by(made.edits))

    def _is_shared_work(self, node: cst.CSTNode) -> bool:
        """Return whether every process would run a node while all processes run."""
        return self.execution.runs(node) and not self.runs_alone(node)

    @cached_property
    def _writers(self) -> dict[cst.FunctionDef, list[cst.Call]]:
        """Functions that only write, with their calls before the end of training, each in a separate line."""
        tree, found = self.tree, dict[cst.FunctionDef, list[cst.Call]]()
        for function in dict.fromkeys(map(tree.function, self._acting)):
            calls = [call for call in tree.calls_of(function) if self.execution.runs(call)] if function else []
            alone = all(isinstance(tree.parents[call], cst.Expr) and tree.function(call) is None for call in calls)
            only = alone and len(calls) == len(tree.uses(function)) if function and calls else False
            if function and only and not self.training.is_collective(function) and self._traces.only_writes(function):
                found[function] = calls
        return found

    @cached_property
    def _below_guards(self) -> frozenset[cst.FunctionDef]:
        """The functions that only write, and those that only such functions call."""
        found, calls = set(self._writers), {each: self.tree.calls_of(each) for each in self.tree.of(cst.FunctionDef)}
        users = {function: {self.tree.function(call) for call in made} for function, made in calls.items() if made}
        while more := {function for function, by in users.items() if function not in found and by <= found}:
            found |= more
        return frozenset(found)

    # -- lines ----------------------------------------------------------------------------------------------

    def _statement(self, node: cst.CSTNode) -> Statement:
        """Return the statement of a node, or the `with` around it that opens a file for writing."""
        owner = self.tree.around(node, cst.With)
        opened = [item.item for item in owner.items if isinstance(item.item, cst.Call)] if owner is not None else []
        opens = any(self.execution.does(each) & Does.WRITE for each in opened)
        return owner if owner is not None and opens else self.tree.statement(node)

    def _saves(self, code: cst.CSTNode) -> set[bool]:
        """Return whether acting calls in code run once per job (they save the model: True) or once per machine."""
        acting = [self.execution.does(call) for call in self.tree.within(code, cst.Call)]
        return {does is Does.SAVE for does in acting if does & Does.ACT}

    def _comes_by(self, node: cst.CSTNode, fails_alike: bool = False) -> bool:
        """Return whether every process reaches a node before training ends, in functions that every process calls.

        Args:
            node: the node.
            fails_alike: it fails on all processes or on none, so that it may be in a `try`.
        """
        tree, places = self.tree, self._ways(node)
        for function in dict.fromkeys(filter(None, map(tree.function, places))):
            calls, during = tree.callers(function), self.execution.runs(function.body, Phase.DURING)
            if not calls or len(calls) < len(tree.named(function)) or during:
                return False
        is_early = all(map(self.training.is_before_end, places))
        return is_early and all(self._is_unconditional(place, fails_alike) for place in places)

    def _ways(self, node: cst.CSTNode) -> list[cst.CSTNode]:
        """Return a node and the calls that lead to it: those of its enclosing function, and so on."""
        tree = self.tree
        return reached([node], lambda place: tree.callers(above) if (above := tree.function(place)) is not None else ())

    def _is_unconditional(self, node: cst.CSTNode, fails_alike: bool) -> bool:
        """Return whether a node always runs when its function does: no test but of constants, and no earlier `return`.

        If the code below the same test trains, every process reaches the node.
        """
        tree, function = self.tree, self.tree.function(node)
        inner: cst.CSTNode = tree.statement(node)
        returns = tree.within(function, cst.Return) if function is not None else ()
        early = any(tree.function(each) is function and tree.start(each) < tree.start(inner) for each in returns)
        if early or any(map(self._is_optional, tree.inside_statement(node))):
            return False
        for above in tree.ancestors(inner):
            if above is function:
                break
            may_fail = isinstance(above, cst.Try) and not (fails_alike and inner is above.body)
            is_tested = isinstance(above, cst.While) or (isinstance(above, cst.If) and not self._is_settled(above))
            if (may_fail or is_tested) and not self.training.is_collective(above):
                return False
            inner = above
        return True

    def _is_tried(self, node: cst.CSTNode) -> bool:
        """Return whether a node is in a `try` or below `suppress`, directly or where its function is called."""
        around = [each for place in self._ways(node) for each in self.tree.ancestors(place)]
        return any(
            isinstance(each, cst.Try) or (isinstance(each, cst.With) and "suppress(" in self.tree.text(each.items[0]))
            for each in around
        )

    def _is_optional(self, node: cst.CSTNode) -> bool:
        """Return whether an expression may skip its parts, or run them elsewhere or later."""
        loops = self.tree.within(node, cst.CompFor) if isinstance(node, cst.BaseComp) else ()
        return isinstance(node, _OPTIONAL) or any(loop.ifs for loop in loops)

    def _calls(self, function: cst.FunctionDef) -> list[cst.Call]:
        """Return the calls of a function, and the calls that call it before they return: `rows.map(function)`."""
        handed = [argument_of(self.tree, use) for use in self.tree.named(function)]
        applied = [call for call in handed if call is not None and _APPLIES.fullmatch(self.tree.text(call.func))]
        return [*self.tree.callers(function), *applied]

    def _is_settled(self, statement: cst.If) -> bool:
        """Return whether a test has the same result in all processes: it uses only constants, and builtins on them."""
        if "__name__" in self.tree.text(statement.test):  # `if __name__ == "__main__":`
            return True
        tree, parts = self.tree, self.tree.backward_slice(statement.test)
        names = [name for part in parts for name in tree.within(part, cst.Name) if tree.literal(name) is ...]
        bound = [binding.value for name in names if (binding := tree.binding(name)) is not None]
        plain = all(name.value in _BUILTINS or tree.binding(name) is not None for name in names) and None not in bound
        return plain and all(tree.qualified(call.func) in _BUILTINS for call in makers(tree, statement.test))


def _placed_by(edits: tuple[Edit, ...]) -> list[cst.CSTNode]:
    """Return the nodes that edits leave to one process."""
    found = [edit.first if isinstance(edit, Guard) else edit.node if isinstance(edit, Wrap) else None for edit in edits]
    return [node for node in found if node is not None]
