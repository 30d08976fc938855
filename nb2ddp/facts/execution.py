"""Which process runs a statement, when, and with which effect, computed once for all rules.

A query returns only live calls that install nothing, so that no rule needs to leave out the others.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from enum import Enum, Flag, auto
from functools import cached_property

import libcst as cst

from nb2ddp.facts.effects import Does, Effects
from nb2ddp.facts.flow import reached, returned
from nb2ddp.facts.training import Training
from nb2ddp.syntax.arguments import entries_of, entry
from nb2ddp.syntax.cells import Source
from nb2ddp.syntax.environ import LAUNCHER_VARIABLES
from nb2ddp.syntax.tree import ADDING, Function, Tree, grouped, method, remembered


class Phase(Flag):
    """The time at which code runs; a function that is used in several phases runs in each of them."""

    DEAD = auto()  #: never: below `if False:`
    INSTALL = auto()  #: it installs packages, and is left out of the script
    BEFORE = auto()  #: before the first training
    DURING = auto()  #: called by a trainer, in each process for that process's rows
    BETWEEN = auto()  #: between two trainings
    AFTER = auto()  #: after the last training, in the main process only

    #: Phases in which all processes run.
    TOGETHER = BEFORE | DURING | BETWEEN


class Who(Enum):
    """Which processes run code."""

    EVERY = "every process"
    MACHINE = "one process of each machine"
    MAIN = "the main process"


#: Names that differ between processes: tests of accelerate and transformers, ranks of torch and the environment.
_LOCAL_RANK = (
    r"\bis_local_(main_process|process_zero)\b|\blocal_process_index\b|\bget_node_local_rank\(|[\"']LOCAL_RANK[\"']"
)
_RANK = (
    r"\bis_main_process\b|\bis_world_process_zero\b|\bprocess_index\b|\bget_(global_)?rank\(|[\"'](GROUP_)?RANK[\"']"
)
_IN_TURN = re.compile(r"\b(local_)?main_process_first\b|\bon_(local_)?main_process\b")
#: Arguments with code that a GRPO trainer calls; the first of them may be the second positional argument.
REWARDS = ("reward_funcs", "rollout_func")
#: Arguments that a trainer does not call during training.
_NOT_CALLED = frozenset(
    "args eval_dataset formatting_func model peft_config processing_class tokenizer train_dataset".split()
)
#: Methods that keep a function and call it later, for example when a row is read.
_LAZY = frozenset({"add_callback", "set_transform", "with_transform"})
_CALLED_CLASSES = re.compile(r".*(Trainer|TrainerCallback)")
#: Functions of the setup block that call their argument in one process.
RUN_ONCE = ("run_once", "run_once_on_each_machine", "run_once_in_try")
#: Sources of a run's name, which only the main process has.
_RUN = ("wandb.init", "wandb.run")
#: Libraries that ask accelerate, torch or the environment for the number of processes.
_LIBRARIES = re.compile(r"(accelerate|deepspeed|lighteval|lm_eval|torch\.distributed|vllm)\..*")
#: Methods that ask for it: those of a trainer that make data loaders, and those of its accelerator.
_SHARING = re.compile(r".*(\.get_\w*dataloader|\baccelerator\.\w+)", re.DOTALL)
#: Functions of imported modules that may train.
_TRAINS_UNSEEN = re.compile(r"(\w+\.)+(train|fine_?tune|fit)(_\w+)?")
#: Programs that read the number of processes from their environment.
_PROGRAMS = re.compile(r"\b(python[\d.]*|accelerate|torchrun|deepspeed|lm[_-]eval|lighteval|vllm)\b")
_IMPORTS = (cst.Import, cst.ImportFrom, cst.ImportAlias)


class Execution:
    """The processes that run each part of a notebook, and the phases in which they do.

    Args:
        source: the notebook's code.
        training: the notebook's training calls.
        effects: the effects of its calls.
        is_install: returns whether a node belongs to a statement that installs packages.
    """

    def __init__(
        self, source: Source, training: Training, effects: Effects, is_install: Callable[[cst.CSTNode], bool]
    ) -> None:
        self.source = source
        self.tree = source.tree
        self.training = training
        self.effects = effects
        self.is_install = is_install
        self._once = [source.name(name) for name in RUN_ONCE]
        self._local = re.compile(rf"{_LOCAL_RANK}|\b{source.name('local_rank')}\b")
        self._main = re.compile(rf"{_RANK}|\b{source.name('is_main_process')}\b")

    # -- queries --------------------------------------------------------------------------------------------

    def calls(
        self, name: str | re.Pattern[str] = "", *, does: Does | None = None, phase: Phase | None = None
    ) -> list[cst.Call]:
        """Return the live calls that install nothing, in order.

        Args:
            name: the full name of the function, or a pattern that matches all of it; empty for any.
            does: effects; a call has at least one of them.
            phase: phases; a call runs in at least one of them.
        """
        if isinstance(name, re.Pattern):
            found = [call for each, calls in self._by_name.items() if name.fullmatch(each) for call in calls]
            found.sort(key=self.tree.start)
        else:
            found = self._by_name.get(name, []) if name else self._acting if does else self._live
        return [
            call
            for call in found
            if (does is None or self.does(call) & does) and (phase is None or self.phase(call) & phase)
        ]

    @cached_property
    def _live(self) -> list[cst.Call]:
        dropped = Phase.DEAD | Phase.INSTALL
        return [call for call in self.tree.of(cst.Call) if not self.phase(call) & dropped]

    @cached_property
    def _acting(self) -> list[cst.Call]:
        return [call for call in self._live if self.does(call)]

    @cached_property
    def _by_name(self) -> dict[str, list[cst.Call]]:
        return grouped((self.tree.qualified(call.func), call) for call in self._live)

    def does(self, call: cst.Call) -> Does:
        """Return the effects of a call, apart from its value."""
        return self.effects.of(call)

    def has(self, node: cst.CSTNode, does: Does) -> bool:
        """Return whether a call inside a node has at least one of these effects."""
        return any(self.does(call) & does for call in self.tree.within(node, cst.Call))

    # -- when -----------------------------------------------------------------------------------------------

    @remembered
    def phase(self, node: cst.CSTNode) -> Phase:
        """Return the phases in which a node runs; none in a function that is not used."""
        if not self.tree.is_live(node):
            return Phase.DEAD
        if self.is_install(node):
            return Phase.INSTALL
        owner = self.owner(node)
        return self._phase_at(self.tree.start(node)) if owner is None else self._phases.get(owner, Phase(0))

    def owner(self, node: cst.CSTNode) -> Function | None:
        """Return the function whose call runs a node: a user-defined function, or a lambda that a trainer calls."""
        start, above = self.tree.start(node), self.tree.enclosing_function(node)
        while above is not None:
            is_lambda = type(above) is cst.Lambda  # a decorator precedes its function, which does not run it
            if above in self._called_by_trainers if is_lambda else self.tree.start(above) < start:
                break
            above = self.tree.enclosing_function(above)
        return above

    def runs(self, node: cst.CSTNode, phase: Phase = Phase.TOGETHER) -> bool:
        """Return whether code runs in one of these phases; by default, while all processes run."""
        return bool(self.phase(node) & phase)

    def _phase_at(self, offset: int) -> Phase:
        """Return the phase of code outside functions."""
        if offset >= self.training.end:
            return Phase.AFTER
        return Phase.BETWEEN if offset >= self._first_end else Phase.BEFORE

    @cached_property
    def _first_end(self) -> int:
        """The offset where the first training's statement ends."""
        return self.tree.span(self.tree.top_statement(self.training.events[0]))[1]

    @cached_property
    def used_in(self) -> dict[Function | None, list[tuple[cst.FunctionDef, cst.CSTNode]]]:
        """The user-defined functions that each function, or module-level code (None), uses, and where it names them.

        A mention of a function that a trainer calls, without a call, passes it on and is not a use.
        """
        return grouped(
            (self.owner(use), (function, use))
            for function in self.tree.of(cst.FunctionDef)
            for use in self.tree.uses(function)
            if function not in self._called_by_trainers or self.tree.call_of(use) is not None
        )

    @cached_property
    def _phases(self) -> dict[Function, Phase]:
        """The phases of functions, propagated along the call graph."""
        phases: dict[Function, Phase] = defaultdict(lambda: Phase(0))
        phases.update(dict.fromkeys(self._called_by_trainers, Phase.DURING))
        for function, use in self.used_in[None]:
            phases[function] |= Phase(0) if self.is_install(use) else self._phase_at(self.tree.start(use))
        for phase in (Phase.BEFORE, Phase.DURING, Phase.BETWEEN, Phase.AFTER):
            for used in reached([each for each in phases if phases[each] & phase], self.uses):
                phases[used] |= phase
        return dict(phases)

    def uses(self, function: Function) -> list[cst.FunctionDef]:
        """Return the user-defined functions that a function uses."""
        return [used for used, _ in self.used_in[function]]

    # -- what trainers call ---------------------------------------------------------------------------------

    def arguments(self, trainer: cst.Call) -> Iterator[tuple[object, cst.BaseExpression]]:
        """Yield keyword and value of a trainer's arguments, also of unpacked dictionaries; "" if unknown."""
        second = "reward_funcs" if "GRPO" in self.tree.class_name(trainer.func) else "args"
        for position, each in enumerate(trainer.args):
            if each.star == "**":
                entries, is_whole = entries_of(self.tree, each.value)
                yield from ((key, known.value) for key, known in entries.items())
                if is_whole:
                    continue
                grown = ((name, entry(self.tree, each.value, name)) for name in REWARDS)
                yield from ((name, known.value) for name, known in grown if known is not None)
            name = ("model", second)[position] if position < 2 else ""
            if each.keyword is not None:
                name = each.keyword.value
            elif each.star and name in REWARDS:  # what is unpacked may hold anything
                name = ""
            yield name, each.value

    @cached_property
    def _called_by_trainers(self) -> set[Function]:
        """Rewards, collators, callbacks, losses, metrics, lazy transforms, and methods of user-defined data sets."""
        tree = self.tree
        given = [each.value for call in tree.live(cst.Call) if method(call) in _LAZY for each in call.args]
        for name, value in (each for call in self.training.trainers for each in self.arguments(call)):
            if name not in _NOT_CALLED:
                given.append(value)
            elif isinstance(made := tree.value(value), cst.Call):
                given.append(made.func)  # an object of a user-defined class
        found: set[Function] = {
            called
            for owner in tree.of(cst.ClassDef)
            if owner.bases and _CALLED_CLASSES.fullmatch(tree.class_name(owner.bases[0].value))
            for called in tree.methods(owner)
        }
        return found.union(handed_on(tree, given)[0])

    # -- who ------------------------------------------------------------------------------------------------

    def who(self, node: cst.CSTNode) -> Who:
        """Return which processes run a node in the notebook as written."""
        inner = node
        for above in self.tree.ancestors(node):
            if type(above) is cst.Call and self.tree.text(above.func) in self._once:
                return Who.MACHINE
            asked = self._asked(above, inner)
            if asked is not Who.EVERY:
                return asked
            inner = above
        return Who.EVERY

    def _asked(self, above: cst.CSTNode, inner: cst.CSTNode) -> Who:
        """Return which processes reach `inner` in a statement, by the test, decorator or `with` of the statement."""
        if isinstance(above, cst.If) and inner is not above.test:
            return self.asks_rank(above.test)
        if not isinstance(above, (cst.With, cst.FunctionDef)) or inner is not above.body:
            return Who.EVERY
        heads: Sequence[cst.CSTNode] = above.items if isinstance(above, cst.With) else above.decorators
        found = next((match for head in heads if (match := _IN_TURN.search(self.tree.text(head)))), None)
        if found is None:
            return Who.EVERY
        return Who.MACHINE if "local" in found[0] else Who.MAIN

    @remembered
    def asks_rank(self, test: cst.BaseExpression) -> Who:
        """Return which processes pass a test, by whether its backward slice asks for the process's rank."""
        texts = [self.tree.text(part) for part in self.tree.backward_slice(test)]
        if any(self._local.search(text) for text in texts):
            return Who.MACHINE
        return Who.MAIN if any(self._main.search(text) for text in texts) else Who.EVERY

    # -- differences ----------------------------------------------------------------------------------------

    def unlike(self, node: cst.CSTNode) -> list[cst.BaseExpression]:
        """Return the parts of a value that differ between processes: a time, a random name, a run's name."""
        unlike = set[cst.BaseExpression]()
        for part in self.tree.backward_slice(node):
            unlike.update(call for call in self.tree.within(part, cst.Call) if self.does(call) is Does.CLOCK)
            unlike.update(name for name in self.tree.within(part, cst.Attribute) if self._names_run(name))
        return self.tree.in_order(unlike)

    def _names_run(self, node: cst.Attribute) -> bool:
        """Return whether a node is the name of a run of Weights & Biases, which differs outside the main process."""
        if node.attr.value not in ("id", "name"):
            return False
        run = self.tree.value(node.value)
        return self.tree.qualified(run.func if isinstance(run, cst.Call) else run) in _RUN


def asks_for_processes(execution: Execution, loads: Sequence[cst.Call]) -> bool:
    """Return whether code after the last training asks for the number of processes.

    Unsloth's loads do (unsloth 2026.10.9, models/loader_utils.py:214, `prepare_device_map`), and so does every trainer.

    Args:
        execution: which process runs what, and when.
        loads: the calls that load a model.
    """
    tree, training = execution.tree, execution.training
    texts = [text for text in tree.live(cst.SimpleString) if tree.content(text) in LAUNCHER_VARIABLES]
    return any(execution.runs(node, Phase.AFTER) for node in (*loads, *texts)) or any(
        _LIBRARIES.fullmatch(tree.qualified(call.func))
        or _SHARING.fullmatch(tree.text(call.func))
        or (_TRAINS_UNSEEN.fullmatch(tree.qualified(call.func)) and isinstance(tree.definition(call.func), _IMPORTS))
        or training.is_trainer_call(call)
        or training.is_arguments(call)
        or (execution.does(call) & Does.RUN and _PROGRAMS.search(execution.effects.command(call)))
        for call in execution.calls(phase=Phase.AFTER)
    )


def handed_on(tree: Tree, values: Iterable[cst.CSTNode]) -> tuple[list[Function], set[cst.CSTNode]]:
    """Return the functions that values contain, and the names through which they contain them.

    Values contain functions by name, in lists, through `partial`, as results of other functions, and as methods.
    """
    functions, names, pending = dict[Function, None](), set[cst.CSTNode](), list(values)
    for value in pending:  # a worklist
        functions.update(dict.fromkeys(tree.within(value, cst.Lambda)))
        for name in tree.within(value, cst.Name):
            definition = tree.definition(name)
            if name in names or definition is None:
                continue
            names.add(name)
            if isinstance(definition, cst.ClassDef):
                functions.update(dict.fromkeys(tree.methods(definition)))
            elif isinstance(definition, cst.FunctionDef) and tree.call_of(name) is None:
                functions[definition] = None
            elif isinstance(definition, cst.FunctionDef):
                pending += returned(tree, definition)
            elif isinstance(definition, (cst.Assign, cst.AnnAssign)) and definition.value is not None:
                pending += [definition.value, *added(tree, name.value)]
    return list(functions), names


def added(tree: Tree, name: str) -> list[cst.BaseExpression]:
    """Return the values that `name.append(...)` and similar calls add to a list."""
    calls = [tree.call_of(tree.parents[use]) for use in tree.loads(name)]
    return [given.value for call in calls if call is not None and method(call) in ADDING for given in call.args]
