"""Which process runs a statement, when, and with which effect: computed once for all rules.

A query gives live calls that install nothing, so that no rule can forget to leave out the others.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from enum import Enum, Flag, auto
from functools import cached_property

import libcst as cst

from nb2ddp.facts.effects import Does, Effects
from nb2ddp.facts.flow import grouped, reached, returned
from nb2ddp.facts.training import Training
from nb2ddp.syntax.arguments import entries_of
from nb2ddp.syntax.cells import Source
from nb2ddp.syntax.environ import LAUNCHER_VARIABLES
from nb2ddp.syntax.tree import ADDING, Function, Tree, method, remembered


class Phase(Flag):
    """When code runs; a function that is used in several phases runs in each of them."""

    DEAD = auto()  #: never: below `if False:`
    INSTALL = auto()  #: it installs packages, and leaves the script
    BEFORE = auto()  #: before the first training
    DURING = auto()  #: called by a trainer, in each process for its own rows
    BETWEEN = auto()  #: between two trainings
    AFTER = auto()  #: after the last training, where the main process is alone

    #: While all processes are there.
    TOGETHER = BEFORE | DURING | BETWEEN


class Who(Enum):
    """Which processes run code."""

    EVERY = "every process"
    MACHINE = "one process of each machine"
    MAIN = "the main process"


#: What differs between processes: accelerate's and transformers' questions, ranks of torch and of the environment.
_LOCAL_RANK = (
    r"\bis_local_(main_process|process_zero)\b|\blocal_process_index\b|\bget_node_local_rank\(|[\"']LOCAL_RANK[\"']"
)
_RANK = (
    r"\bis_main_process\b|\bis_world_process_zero\b|\bprocess_index\b|\bget_(global_)?rank\(|[\"'](GROUP_)?RANK[\"']"
)
_IN_TURN = re.compile(r"\b(local_)?main_process_first\b|\bon_(local_)?main_process\b")
#: What a trainer is given that it does not call during training.
_NOT_CALLED = frozenset(
    "args eval_dataset formatting_func model peft_config processing_class tokenizer train_dataset".split()
)
#: Methods that keep a function for the time when a row is read.
_LAZY = frozenset({"add_callback", "set_transform", "with_transform"})
_CALLED_CLASSES = re.compile(r".*(Trainer|TrainerCallback)")
#: The functions of the setup block that call what they are given in one process.
RUN_ONCE = ("run_once", "run_once_on_each_machine", "run_once_in_try")
#: What a run's name is made of that only the main process has.
_RUN = ("wandb.init", "wandb.run")
#: What asks for the number of processes: libraries that ask accelerate, torch or the environment.
_LIBRARIES = re.compile(r"(accelerate|deepspeed|lighteval|lm_eval|torch\.distributed|vllm)\..*")
#: What asks by its own name: a trainer's loaders, its accelerator's methods.
_SHARING = re.compile(r".*(\.get_\w*dataloader|\baccelerator\.\w+)", re.DOTALL)
#: What trains out of sight: a function of a module that the notebook imports.
_TRAINS_UNSEEN = re.compile(r"(\w+\.)+(train|fine_?tune|fit)(_\w+)?")
#: Programs that ask the environment they are started with.
_PROGRAMS = re.compile(r"\b(python[\d.]*|accelerate|torchrun|deepspeed|lm[_-]eval|lighteval|vllm)\b")
_IMPORTS = (cst.Import, cst.ImportFrom, cst.ImportAlias)


class Execution:
    """The steps of a notebook.

    Args:
        source: the notebook's code.
        training: where it trains.
        effects: what its calls do.
        is_install: true for a node of a statement that installs packages.
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
        """Live calls that install nothing, in order.

        Args:
            name: the full name of what is called, or a pattern for all of it; empty for any.
            does: some of what they do.
            phase: some of the phases that they run in.
        """
        if isinstance(name, re.Pattern):
            found = [call for each, calls in self._by_name.items() if name.fullmatch(each) for call in calls]
            found.sort(key=self.tree.start)
        else:
            found = self._by_name.get(name, []) if name else self._live
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
    def _by_name(self) -> dict[str, list[cst.Call]]:
        return grouped((self.tree.qualified(call.func), call) for call in self._live)

    def does(self, call: cst.Call) -> Does:
        """What a call does beyond giving a value."""
        return self.effects.of(call)

    def has(self, node: cst.CSTNode, does: Does) -> bool:
        """True where some call inside a node does some of this."""
        return any(self.does(call) & does for call in self.tree.within(node, cst.Call))

    # -- when -----------------------------------------------------------------------------------------------

    @remembered
    def phase(self, node: cst.CSTNode) -> Phase:
        """When a node runs; no phase in a function that nothing uses."""
        if not self.tree.is_live(node):
            return Phase.DEAD
        if self.is_install(node):
            return Phase.INSTALL
        owner = self.owner(node)
        return self._phase_at(self.tree.start(node)) if owner is None else self._phases.get(owner, Phase(0))

    def owner(self, node: cst.CSTNode) -> Function | None:
        """The function whose call runs a node: a user-defined one, or a lambda that a trainer calls."""
        start = self.tree.start(node)
        for above in self.tree.ancestors(node):
            if type(above) is cst.FunctionDef and self.tree.start(above) < start:  # a decorator stands above it
                return above
            if type(above) is cst.Lambda and above in self._called_by_trainers:
                return above
        return None

    def runs(self, node: cst.CSTNode, phase: Phase = Phase.TOGETHER) -> bool:
        """True for code that runs in some of these phases: as long as all processes are there."""
        return bool(self.phase(node) & phase)

    def _phase_at(self, offset: int) -> Phase:
        """The phase of code that stands in no function."""
        if offset >= self.training.end:
            return Phase.AFTER
        return Phase.BETWEEN if offset >= self._first_end else Phase.BEFORE

    @cached_property
    def _first_end(self) -> int:
        """Where the first training's statement ends."""
        return self.tree.span(self.tree.top_statement(self.training.events[0]))[1]

    @cached_property
    def used_in(self) -> dict[Function | None, list[tuple[cst.FunctionDef, cst.CSTNode]]]:
        """The user-defined functions that each function uses, or code outside of all (None), and where it names them.

        To name a function that a trainer calls, without a call, is to hand it on.
        """
        return grouped(
            (self.owner(use), (function, use))
            for function in self.tree.of(cst.FunctionDef)
            for use in self.tree.uses(function)
            if function not in self._called_by_trainers or self.tree.call_of(use) is not None
        )

    @cached_property
    def _phases(self) -> dict[Function, Phase]:
        """The phases of functions, passed on from where each is used to those that it uses."""
        phases: dict[Function, Phase] = defaultdict(lambda: Phase(0))
        phases.update(dict.fromkeys(self._called_by_trainers, Phase.DURING))
        for function, use in self.used_in[None]:
            phases[function] |= Phase(0) if self.is_install(use) else self._phase_at(self.tree.start(use))
        for phase in (Phase.BEFORE, Phase.DURING, Phase.BETWEEN, Phase.AFTER):
            for used in reached([each for each in phases if phases[each] & phase], self.uses):
                phases[used] |= phase
        return dict(phases)

    def uses(self, function: Function) -> list[cst.FunctionDef]:
        """The user-defined functions that a function uses."""
        return [used for used, _ in self.used_in[function]]

    # -- what trainers call ---------------------------------------------------------------------------------

    def arguments(self, trainer: cst.Call) -> Iterator[tuple[object, cst.BaseExpression]]:
        """What a trainer is given, in a dictionary that it unpacks too, with its keyword; "" where none is known."""
        second = "reward_funcs" if "GRPO" in self.tree.class_name(trainer.func) else "args"
        for position, each in enumerate(trainer.args):
            if each.star == "**":
                entries = entries_of(self.tree, each.value)[0]
                yield from ((key, entry.value) for key, entry in entries.items())
            elif each.keyword is not None:
                yield each.keyword.value, each.value
            else:
                yield ("model", second)[position] if position < 2 else "", each.value

    @cached_property
    def _called_by_trainers(self) -> set[Function]:
        """Rewards, collators, callbacks, losses, metrics, lazy transforms, rows of a data set of the notebook's own."""
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
        """Which processes run a node, as the notebook is written."""
        inner = node
        for above in self.tree.ancestors(node):
            if isinstance(above, cst.Call) and self.tree.text(above.func) in self._once:
                return Who.MACHINE
            asked = self._asked(above, inner)
            if asked is not Who.EVERY:
                return asked
            inner = above
        return Who.EVERY

    def _asked(self, above: cst.CSTNode, inner: cst.CSTNode) -> Who:
        """Which processes come into a statement, by its own test or decorator, as far as `inner`."""
        if isinstance(above, cst.If) and inner is not above.test:
            return self.asks_rank(above.test)
        if not isinstance(above, (cst.With, cst.FunctionDef)) or inner is not above.body:
            return Who.EVERY
        heads: Sequence[cst.CSTNode] = above.items if isinstance(above, cst.With) else above.decorators
        found = next((match for head in heads if (match := _IN_TURN.search(self.tree.text(head)))), None)
        if found is None:
            return Who.EVERY
        return Who.MACHINE if "local" in found[0] else Who.MAIN

    def asks_rank(self, test: cst.BaseExpression) -> Who:
        """Whom a test lets through: it, or what it names, asks for the process's rank."""
        texts = [self.tree.text(part) for part in self.tree.backward_slice(test)]
        if any(self._local.search(text) for text in texts):
            return Who.MACHINE
        return Who.MAIN if any(self._main.search(text) for text in texts) else Who.EVERY

    # -- alike ----------------------------------------------------------------------------------------------

    def unlike(self, node: cst.CSTNode) -> list[cst.BaseExpression]:
        """What a value is made of that each process gets another of: a time, a random name, a run's name."""
        unlike = set[cst.BaseExpression]()
        for part in self.tree.backward_slice(node):
            unlike.update(call for call in self.tree.within(part, cst.Call) if self.does(call) is Does.CLOCK)
            unlike.update(name for name in self.tree.within(part, cst.Attribute) if self._names_run(name))
        return self.tree.in_order(unlike)

    def _names_run(self, node: cst.Attribute) -> bool:
        """True for the name of a run of Weights & Biases: all but the main process log nothing, under another."""
        if node.attr.value not in ("id", "name"):
            return False
        run = self.tree.value(node.value)
        return self.tree.qualified(run.func if isinstance(run, cst.Call) else run) in _RUN


def asks_for_processes(execution: Execution, loads: Sequence[cst.Call]) -> bool:
    """True where what follows the last training asks for the number of processes.

    Unsloth's loads do (unsloth 2026.10.9, models/loader_utils.py:214, `prepare_device_map`), and every trainer.

    Args:
        execution: who runs what, when.
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
    """The functions that values hold, and the names through which they do.

    They hold them by name, in lists, by `partial`, made by other functions, and as methods of objects.
    """
    functions, names, pending = dict[Function, None](), set[cst.CSTNode](), list(values)
    for value in pending:  # which grows on the way
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
    """What `name.append(...)` and the like put into a list."""
    calls = [tree.call_of(tree.parents[use]) for use in tree.loads(name)]
    return [given.value for call in calls if call is not None and method(call) in ADDING for given in call.args]
