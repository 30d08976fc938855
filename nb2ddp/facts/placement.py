"""Decide where a statement runs: in one process, in one for all, not at all, or by a shared answer.

Every decision is an edit, or none where a person has to decide.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property

import libcst as cst

from nb2ddp.facts.effects import Does, gives_an_object, of_wandb, opens_archive
from nb2ddp.facts.execution import Execution, Phase, Who
from nb2ddp.facts.flow import owner_of, reached, suppresses, taker
from nb2ddp.facts.services import called_on
from nb2ddp.facts.shell import kills_job
from nb2ddp.facts.traces import Traces
from nb2ddp.syntax.edits import Edit, Guard, InsertAfter, Wrap
from nb2ddp.syntax.tree import Statement, Tree, argument, keyword, own_class, small_statements

IN_TURN = "with PartialState().local_main_process_first()"
WAIT_CALL = "PartialState().wait_for_everyone()"
_TRY = "try"
_APPLIES = re.compile(r"map|(.*\.)(map|filter|apply|applymap|submit|imap|imap_unordered|starmap)", re.DOTALL)
#: Builtins that give equal results for equal values in all processes.
_BUILTINS = frozenset("abs all any bool float int isinstance len max min round sorted str sum".split())
_WRITES_TO_FILE = re.compile(r"(json|pickle|yaml|joblib|cloudpickle|dill)\.(dump|safe_dump)")


@dataclass(frozen=True)
class Decision:
    """Where one call that acts is to run.

    Attributes:
        unit: the statement, or the function, that is placed as a whole.
        edits: what places it; none where it may stay, or where a person has to decide.
        stays: every process may do it as it is.
    """

    call: cst.Call
    unit: Statement
    edits: tuple[Edit, ...] = ()
    stays: bool = False


class Placement:
    """Edits that place what may not run in every process.

    Args:
        execution: who runs what as the notebook is written.
    """

    def __init__(self, execution: Execution) -> None:
        self.execution = execution
        self.tree = execution.tree
        self.training = execution.training
        self.traces = Traces(execution.training, execution.effects)

    # -- decisions ------------------------------------------------------------------------------------------

    @cached_property
    def decisions(self) -> list[Decision]:
        """Each call of Python that acts while all processes are there, with its place; each unit once."""
        found: dict[cst.CSTNode, Decision] = {}
        for call in self._acting:
            if (made := self._decide(call)) is not None:
                inside = any(above in found for above in self.tree.ancestors(call) if isinstance(above, cst.Call))
                unit = call if any(isinstance(edit, Wrap) for edit in made.edits) else made.unit
                if not inside:
                    found.setdefault(unit, made)
        return list(found.values())

    @cached_property
    def _acting(self) -> list[cst.Call]:
        """Calls of Python that act while all processes are there; shell commands have a rule of their own."""
        calls, form = self.execution.calls(does=Does.ACT, phase=Phase.TOGETHER), self.execution.source.form
        commands = self.execution.effects.command
        return [call for call in calls if form(call) is None and not kills_job(commands(call))]  # which DDP412 drops

    def _decide(self, call: cst.Call) -> Decision | None:
        function = self.tree.function(call)
        if function is not None and (callers := self.writers.get(function)):
            acting = [self.execution.does(each) & Does.ACT for each in self.tree.within(function, cst.Call)]
            saves = all(does is Does.SAVE for does in acting if does)
            edits = tuple(edit for each in callers for edit in self.once(each, in_whole_job=saves))
            return Decision(call, function, edits) if edits else None
        if self.runs_alone(call):
            return None
        unit = self._unit(call)
        ends_others = self.execution.does(call) & Does.KILL and self.execution.runs(call, Phase.DURING)
        if ends_others or _may_exist(self.tree, call):
            return Decision(call, unit, stays=True)
        edits = self._edits(call, unit)
        if edits:
            return Decision(call, unit, edits)
        elsewhere = self.elsewhere(call)
        if isinstance(unit, cst.With) or self.training.is_joint(unit):
            if elsewhere:
                return Decision(call, unit, (*elsewhere, *self.waits_after(unit)))
            if _WRITES_TO_FILE.fullmatch(self.tree.qualified(call.func)):
                return Decision(call, unit, stays=True)  # into a file that a call of its own has opened
        if elsewhere and isinstance(opened := self.tree.parents[call], cst.Assign):
            waits = tuple(edit for close in self._closings(opened) for edit in self.waits_after(close))
            return Decision(call, unit, (*elsewhere, *waits))
        return Decision(call, unit)

    def _unit(self, call: cst.Call) -> Statement:
        """The statement to run once: a `with open(...)` as a whole, else the call's own.

        An archive's is as a whole where nothing in it is needed outside, and so is what starts a program beside it.
        """
        statement, top = self.tree.statement(call), self.tree.top_statement(call)
        if self._serves(top):
            return top
        owner = statement if isinstance(statement, cst.With) else self.tree.around(statement, cst.With)
        if owner is None:
            return statement
        opened = [item.item for item in owner.items if isinstance(item.item, cst.Call)]
        archive = any(opens_archive(self.tree, each) for each in opened)
        writes = any(self.execution.does(each) & Does.WRITE for each in opened)  # when the `with` ends
        opens = archive or writes or any(self.tree.qualified(each.func).endswith("open") for each in opened)
        return statement if not opens or (archive and self.traces.leaves(owner)) else owner

    def _serves(self, top: Statement) -> bool:
        """True for a whole test or `try` that starts a program beside the script, and keeps it to itself."""
        if not isinstance(top, (cst.If, cst.Try)) or self.training.is_joint(top) or self.traces.leaves(top):
            return False
        calls = self.tree.within(top, cst.Call)
        starts = any(self.tree.qualified(c.func) == "subprocess.Popen" and self.tree.function(c) is None for c in calls)
        placed = {each for callers in self.writers.values() for each in callers}
        return (
            starts
            and placed.isdisjoint(calls)
            and not any(self.execution.source.form(call) for call in calls)
            and not any(map(self.is_asked_once, self.tree.within(top, cst.If)))
        )

    def _edits(self, call: cst.Call, unit: Statement) -> tuple[Edit, ...]:
        """Run a whole statement once, where it leaves no trace; else hand the value of the call to all."""
        if isinstance(unit, cst.FunctionDef):  # of one line, `def log(text): file.write(text)`
            return ()
        does = self.execution.does(call)
        has_run = does is Does.FETCH and of_wandb(self.tree, call) not in ("", "wandb.Api")  # the main process alone
        in_whole_job = does is Does.SAVE or has_run
        if isinstance(unit, (cst.If, cst.Try, cst.With)):
            return () if self.traces.leaves(unit) else self.once(unit, in_whole_job)
        if _is_all_there_is(self.tree, call, unit) or (self._acts_alike(unit) and self.traces.only_acts(unit)):
            return self.once(unit, in_whole_job)
        if not gives_an_object(self.tree, call):
            return self.shared(call, in_whole_job)
        named = self.tree.parents[call]  # of a file: `run.restore("model.pt").name`
        is_name = isinstance(named, cst.Attribute) and named.attr.value == "name"
        return self.shared(cst.ensure_type(named, cst.Attribute), in_whole_job) if is_name else ()

    def alone(self, call: cst.Call) -> dict[cst.CSTNode, tuple[Edit, ...]]:
        """Let one process make an object that no other uses, and make the calls of it that are statements of their own.

        Empty where another process needs the object.
        """
        tree, assign = self.tree, self.tree.parents[call]
        target = assign.targets[0].target if isinstance(assign, cst.Assign) and len(assign.targets) == 1 else None
        if not isinstance(target, cst.Name) or not tree.is_certain(assign):
            return {}
        others = [use for use in tree.bound_uses(assign) if self.execution.runs(use) and not self.is_done_once(use)]
        lines = [tree.parents[called] for use in others if (called := called_on(tree, use)) is not None]
        if len(lines) < len(others) or not all(isinstance(line, cst.Expr) for line in lines):
            return {}
        edits = {node: self.once(node) for node in (call, *lines)}
        return edits if all(edits.values()) else {}

    def _closings(self, opened: cst.Assign) -> list[Statement]:
        """The statements that close a file by the name that it is given."""
        asked = [self.tree.parents[use] for use in self.tree.kept_uses(opened)]
        return [self.tree.statement(each) for each in asked if each in self.tree.attributes("close")]

    @cached_property
    def guards(self) -> list[Guard]:
        """The guards of all decisions that leave a statement to one process."""
        edits = [edit for made in self.decisions for edit in made.edits]
        return [edit for edit in edits if isinstance(edit, Guard) and edit.header != _TRY]

    def once(self, node: cst.CSTNode, in_whole_job: bool = False) -> tuple[Edit, ...]:
        """Run a statement on each machine's first process, or on the main process alone; the others wait for it.

        Below a test or a `try` the wait follows the outermost one, which every process reaches. None where all
        processes must run it, or where the main process is alone already.
        """
        if not self._is_shared_work(node):
            return ()
        statement = self._whole(self.tree.statement(node))
        if self.training.is_joint(statement):
            return ()
        header = "if is_main_process" if in_whole_job else "if local_rank == 0"
        waits = self.waits_after(statement)
        if [each.statement for each in waits if isinstance(each, InsertAfter)] == [statement]:
            return (Guard(statement, statement, header, WAIT_CALL),)
        return (Guard(statement, statement, header), *waits)

    def in_turn(self, call: cst.Call) -> tuple[Guard, ...]:
        """Let one process of each machine make a call before the others do; none where not all processes come to it."""
        edits: list[Guard] = []
        for statement in self._made_by(call):
            alone = self.runs_alone_as_placed(statement) or not self._is_shared_work(statement)
            if alone or self.training.is_joint(statement) or self._conditional(statement) is not statement:
                return ()
            edits.append(Guard(statement, statement, IN_TURN))
        return tuple(edits)

    def _made_by(self, node: cst.CSTNode) -> list[Statement]:
        """The statements outside functions that run a node: its own, or those that call its function."""
        places = self.tree.run_from(node, lambda used: [*self.tree.callers(used), *self._handed_to(used)])
        return list(dict.fromkeys(map(self.tree.statement, places)))

    def _handed_to(self, function: cst.FunctionDef) -> list[cst.Call]:
        """The calls that a function is given to and that call it before they are done: `rows.map(function)`."""
        calls = [taker(self.tree, use) for use in self.tree.named(function)]
        return [call for call in calls if call is not None and _APPLIES.fullmatch(self.tree.text(call.func))]

    def _run_by(self, node: cst.CSTNode) -> list[Statement]:
        """The top-level statements before the end of training that run a node: around it, or calling its function."""
        tops = dict.fromkeys(map(self.tree.top_statement, self._made_by(node)))
        return [top for top in tops if self.training.is_before_end(top)]

    def on_main_process(self, node: cst.CSTNode) -> tuple[Edit, ...]:
        """Run a statement on the main process alone; nobody waits for it."""
        statement = self.tree.statement(node)
        if not self._is_shared_work(node) or self.training.is_joint(statement):
            return ()
        return (Guard(statement, statement, "if is_main_process", waits=False),)

    def shared(self, call: cst.BaseExpression, in_whole_job: bool = False) -> tuple[Edit, ...]:
        """Evaluate an expression on each machine's first process, or on the main one, and give the others its value.

        None where not every process need come to it. What a `try` outside functions begins with
        may fail: it fails on all alike.
        """
        statement = self.tree.statement(call)
        if self.training.is_joint(call) or _is_optional(self.tree, call):
            return ()
        below = self._conditional(statement)
        begins = isinstance(below, cst.Try) and below.body.body[0] is statement and self.tree.function(call) is None
        return (self._run_once(call, in_whole_job),) if begins or below is statement else ()

    def elsewhere(self, call: cst.Call) -> tuple[Edit, ...]:
        """Let all processes but one open nothing for writing, where all must run the line."""
        mode = argument(call, "mode", 1)
        only_writes = mode is not None and re.fullmatch("[wa][bt]?", str(self.tree.literal(mode.value)))
        if self.tree.qualified(call.func) != "open" or not only_writes or not call.args or call.args[0].star:
            return ()
        path = call.args[0].value

        bracket = ("(", ")") if isinstance(path, (cst.IfExp, cst.Lambda, cst.NamedExpr)) and not path.lpar else ("", "")
        return (Wrap(path, bracket[0], f"{bracket[1]} if local_rank == 0 else os.devnull"),)

    def waits_after(self, statement: Statement) -> tuple[Edit, ...]:
        """Wait for each other below a statement, or below the outermost test or `try` around it.

        Below what calls its function where not every process comes to that; never below the last training. In a `try`
        that goes on with what was written, the wait stands in a `finally` of the statement's own.
        """
        if self._is_read_in_try(statement):
            return (Guard(statement, statement, _TRY, f"finally:\n    {WAIT_CALL}"),)
        barred = None if self.traces.returns(statement) else self._conditional(statement)
        below = self._run_by(statement) if barred is None or barred is self.training.last else [barred]
        return tuple(InsertAfter(each, WAIT_CALL) for each in below if not self._ends_training(each))

    def _ends_training(self, statement: Statement) -> bool:
        """True for the last training, and for what stands below it in its block: all wait for each other there."""
        above = list(self.tree.ancestors(statement))
        again = any(isinstance(each, (cst.For, cst.While, cst.FunctionDef)) for each in above)
        late = all(self.tree.start(event) < self.tree.start(statement) for event in self.training.events)
        return statement is self.training.last or (self.training.last in above and late and not again)

    def _is_read_in_try(self, statement: Statement) -> bool:
        """True in the body of a `try` that all processes come to, where a later line does more than act or tell."""
        block = self.tree.parents[statement]
        above = self.tree.parents.get(block)
        if not isinstance(above, cst.Try) or block is not above.body or self._conditional(statement) is not above:
            return False
        later = [each for each in above.body.body if self.tree.start(each) > self.tree.start(statement)]
        return not self.traces.returns(statement) and not all(map(self.traces.only_acts, later))

    def ask_once(self, test: cst.If) -> tuple[Edit, ...]:
        """Ask the main process alone, so that none comes late and finds what another has made meanwhile."""
        if self._conditional(test) is not test or self.tree.within(test.test, cst.NamedExpr):
            return ()
        asked = self._run_once(test.test, in_whole_job=True)
        if not isinstance(test.test, cst.BooleanOperation):
            return (asked,)
        return (Wrap(test.test, f"{asked.before}bool(", f"){asked.after}"),)  # it may give what cannot be sent

    def _run_once(self, node: cst.BaseExpression, in_whole_job: bool) -> Wrap:
        return Wrap(node, "run_once(lambda: ", ", in_whole_job=True)" if in_whole_job else ")")

    # -- who runs what, as placed ---------------------------------------------------------------------------

    def runs_alone(self, node: cst.CSTNode) -> bool:
        """True for what one process runs: below a question for the rank, or in a function that one process calls."""
        is_below = not self.below_guards.isdisjoint(self.tree.ancestors(node))
        return is_below or self.execution.who(node) is not Who.EVERY

    def runs_alone_as_placed(self, node: cst.CSTNode) -> bool:
        """True for what one process runs in the notebook or in the script."""
        return self.runs_alone(node) or not self._guarded.isdisjoint(self.tree.ancestors(node))

    def is_done_once(self, node: cst.CSTNode) -> bool:
        """True for what one process runs as it is placed, also where it hands the value of it to the others."""
        return self.runs_alone_as_placed(node) or not self._handed.isdisjoint((node, *self.tree.ancestors(node)))

    @cached_property
    def _guarded(self) -> frozenset[cst.CSTNode]:
        return frozenset(guard.first for guard in self.guards)

    @cached_property
    def _handed(self) -> frozenset[cst.CSTNode]:
        """What one process works out and hands to the others."""
        wraps = [edit for made in self.decisions for edit in made.edits if isinstance(edit, Wrap)]
        return frozenset(wrap.node for wrap in wraps if wrap.before.startswith("run_once"))

    def _is_shared_work(self, node: cst.CSTNode) -> bool:
        """True for what every process would run while all are there."""
        return self.execution.runs(node) and not self.runs_alone(node)

    @cached_property
    def writers(self) -> dict[cst.FunctionDef, list[cst.Call]]:
        """Functions that do nothing but write, with their calls before the end of training, where each stands alone.

        Every one of these calls is made at module level, so that one process can make it and the others wait.
        """
        found: dict[cst.FunctionDef, list[cst.Call]] = {}
        for function in dict.fromkeys(self.tree.function(call) for call in self._acting):
            callers = self._callers(function) if function is not None else []
            if function is not None and callers and self.traces.only_writes(function):
                found[function] = callers
        return found

    @cached_property
    def below_guards(self) -> frozenset[cst.FunctionDef]:
        """The functions of `writers`, and those that nothing else calls."""
        found = set(self.writers)

        calls = {function: self.tree.calls_of(function) for function in self.tree.of(cst.FunctionDef)}
        users = {function: {self.tree.function(call) for call in made} for function, made in calls.items() if made}
        while more := {function for function, by in users.items() if function not in found and by <= found}:
            found |= more
        return frozenset(found)

    def _callers(self, function: cst.FunctionDef) -> list[cst.Call]:
        """The calls before the end of training, where each stands alone at module level; none for one that trains.

        Or gives a name what nothing reads until then: `server = start()`.
        """
        tree = self.tree
        callers = [call for call in tree.calls_of(function) if self.execution.runs(call)]
        alone = all(self._is_unread(tree.parents[call]) and tree.function(call) is None for call in callers)
        trains = any(event in callers for event in self.training.events)
        return callers if alone and not trains and len(callers) == len(tree.uses(function)) else []

    def _is_unread(self, statement: cst.CSTNode) -> bool:
        """True for a statement whose value no process needs before the end of training."""
        if not isinstance(statement, cst.Assign) or not isinstance(statement.targets[0].target, cst.Name):
            return isinstance(statement, cst.Expr)
        uses = self.tree.bound_uses(statement)
        return len(statement.targets) == 1 and not any(map(self.execution.runs, uses))

    # -- where all processes can wait -----------------------------------------------------------------------

    def _conditional(self, statement: Statement) -> Statement | None:
        """The statement after which every process can wait: the outermost that not all may go through, or itself.

        None in a function that not every process calls alike: a method, or one that is handed on or used after
        training.
        """
        after: Statement = statement
        for above in self.tree.ancestors(statement):
            if isinstance(above, (cst.If, cst.Try, cst.While)):
                if not self._is_settled(above) and not self._shares_answer(above):
                    after = above
            elif isinstance(above, cst.With) and any(suppresses(self.tree, item) for item in above.items):
                after = above
            elif isinstance(above, cst.For) and not self._runs_alike(above):
                after = above
            elif isinstance(above, (cst.Lambda, cst.ClassDef)):
                return None
            elif isinstance(above, cst.FunctionDef):
                return after if self._comes_back(above, statement, after) and self._called_alike(above) else None
        return after

    def _is_settled(self, statement: cst.CSTNode) -> bool:
        """True for a test of constants that the notebook sets, or of what builtins make of them: all answer alike."""
        if not isinstance(statement, cst.If):
            return False
        if "__name__" in self.tree.text(statement.test):  # `if __name__ == "__main__":`
            return True
        tree, parts = self.tree, self.tree.made_of(statement.test)
        names = [name for part in parts for name in tree.within(part, cst.Name) if tree.literal(name) is ...]
        builtin = {name for name in names if name.value in _BUILTINS and tree.binding(name) is None}
        bound = [tree.binding(name) for name in names if name not in builtin]
        plain = all(each is not None and each.value is not None for each in bound)
        return plain and all(call.func in builtin for part in parts for call in tree.within(part, cst.Call))

    def _comes_back(self, function: cst.FunctionDef, statement: Statement, after: Statement) -> bool:
        """True where no process leaves a function above a statement without the others, or before the end of `after`
        around it."""
        if after is not statement and self.traces.returns(after):
            return False
        start, function_of = self.tree.start(statement), self.tree.function
        returns = [each for each in self.tree.within(function, cst.Return) if function_of(each) is function]
        early = [each for each in returns if self.tree.start(each) < start]
        return all(any(map(self._shares_answer, list(self.tree.ancestors(each))[:3])) for each in early)

    def _called_alike(self, function: cst.FunctionDef) -> bool:
        """True for a function that every process calls at the same places, all before the end of training.

        False for one that calls itself, or comes back to itself through others.
        """
        calls = self._all_calls(function)
        statements = [self.tree.statement(call) for call in calls]
        return (
            bool(calls)
            and function not in reached(self._users(function), self._users)
            and all(self.training.is_before_end(call) for call in calls)
            and all(self._conditional(statement) is statement for statement in statements)
            and not any(_is_optional(self.tree, call) for call in calls)
        )

    def _users(self, function: cst.FunctionDef) -> list[cst.FunctionDef]:
        """The functions that call a function."""
        callers = map(self.tree.function, self._all_calls(function))
        return [caller for caller in callers if caller is not None]

    def _all_calls(self, function: cst.FunctionDef) -> list[cst.Call]:
        """The calls of a function or method, where nothing else may call it: it is not handed on, nor inherited."""
        owner, named = self.tree.scope(function), self.tree.uses(function)
        if isinstance(owner, cst.ClassDef):
            if owner.bases or (function.name.value.startswith("__") and function.name.value != "__init__"):
                return []
            named = [node for node in self.tree.named(function) if own_class(self.tree, node) in (owner, None)]
        calls = [call for node in named if (call := self.tree.call_of(node)) is not None]
        return calls if len(calls) == len(named) else []

    # -- tests of the file system ---------------------------------------------------------------------------

    def is_asked_once(self, test: cst.CSTNode) -> bool:
        """True for a test of the file system, one of whose branches writes and does more: see `ask_once`.

        Where its body returns, what follows in the function is the other branch.
        """
        return (
            isinstance(test, cst.If)
            and self.execution.has(test.test, Does.TEST | Does.LIST)
            and self.tree.is_live(test.body)
            and self._is_shared_work(test)
            and any(self.acts(call) for call in self._in_branches(test))
            and not self.traces.only_acts(test)
        )

    def acts(self, call: cst.Call) -> bool:
        """True for a live call that one process must make for all."""
        return bool(self.execution.does(call) & Does.ACT) and self.tree.is_live(call)

    def _shares_answer(self, test: cst.CSTNode) -> bool:
        """True for a test that is asked once for all processes, so that they take the same branch."""
        return isinstance(test, cst.If) and self.is_asked_once(test) and bool(self.ask_once(test))

    def _runs_alike(self, loop: cst.For) -> bool:
        """True for a loop that no process leaves before another: over no files, which one may just be writing."""
        listed = any(self.execution.has(part, Does.LIST) for part in self.tree.made_of(loop.iter))
        return not listed and not any(self.tree.within(loop, kind) for kind in (cst.Break, cst.Continue))

    def _in_branches(self, test: cst.If) -> list[cst.Call]:
        """The calls of a test's branches, and those with its path below a later `if not x:` for what its body binds."""
        tree, last, start = self.tree, test.body.body[-1], self.tree.start(test)
        function = tree.function(test)
        if function is not None and isinstance((small_statements(last) or (last,))[-1], cst.Return):
            return [call for call in tree.within(function, cst.Call) if tree.start(call) >= start]
        targets = [tree.text(each.target) for each in tree.within(test.body, cst.AssignTarget)]
        lacks = {text for name in targets for text in (f"not {name}", f"{name} is None")}
        asked = {tree.text(each.value) for each in tree.within(test.test, cst.Arg)}
        later = [each for each in tree.of(cst.If) if tree.text(each.test) in lacks and tree.start(each) > start]
        alike = [call for each in later if tree.function(each) is function for call in tree.within(each, cst.Call)]
        same = [call for call in alike if any(tree.text(each.value) in asked for each in call.args)]
        return [*tree.within(test, cst.Call), *same]

    def _whole(self, statement: Statement) -> Statement:
        """The largest `if` or `try` around a statement that does nothing but what runs once, as it does."""
        tree = self.tree
        for above in tree.ancestors(statement):
            if isinstance(above, (cst.If, cst.Try)) and not isinstance(tree.parents[above], cst.If):
                others = [*tree.within(above, cst.SimpleStatementSuite), *tree.within(above, cst.FunctionDef)]
                if others or not self.traces.only_acts(above):
                    break
                if not self._acts_alike(above):
                    break
                statement = above
            elif not isinstance(above, (cst.IndentedBlock, cst.If, cst.Else, cst.ExceptHandler, cst.Finally, cst.Try)):
                break
        return statement

    def _acts_alike(self, code: cst.CSTNode) -> bool:
        """False for code that acts partly once a machine, and partly once in the whole job."""
        acting = [self.execution.does(call) for call in self.tree.within(code, cst.Call)]
        return len({does is Does.SAVE for does in acting if does & Does.ACT}) < 2


def _may_exist(tree: Tree, call: cst.Call) -> bool:
    """True for a folder that is made where there is none: all may make it."""
    given = keyword(call, "exist_ok")
    is_folder = tree.qualified(call.func) == "os.makedirs" or tree.text(call.func).endswith(".mkdir")
    return is_folder and given is not None and tree.literal(given.value) is True


def _is_all_there_is(tree: Tree, call: cst.Call, statement: Statement) -> bool:
    """True for a line that does nothing but a call, or prints it, or asks something of it: `open(...).write(...)`."""
    small = small_statements(statement)
    whole = small[0].value if len(small) == 1 and isinstance(small[0], cst.Expr) else None
    prints = isinstance(whole, cst.Call) and tree.qualified(whole.func) == "print"
    return prints or call in (whole, owner_of(whole))


def _is_optional(tree: Tree, call: cst.BaseExpression) -> bool:
    """True for a call that its own statement may leave out, or make elsewhere or later."""
    inner = (cst.Lambda, cst.GeneratorExp, cst.IfExp, cst.BooleanOperation)
    above = list(tree.inside_statement(call))
    made = [node for node in above if isinstance(node, (cst.ListComp, cst.SetComp, cst.DictComp))]
    loops = [loop for each in made for loop in tree.within(each, cst.CompFor)]
    return any(isinstance(node, inner) for node in above) or any(loop.ifs for loop in loops)
