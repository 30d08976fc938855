"""The trainers of a notebook, its training calls, and the statement after which training is over."""

from __future__ import annotations

import bisect
import re
from collections.abc import Iterator
from functools import cached_property

import libcst as cst

from nb2ddp.facts.flow import reached
from nb2ddp.syntax.tree import Statement, Tree, keyword, method

#: Trainers whose loss is a mean over tokens.
TOKEN_TRAINERS = ("SFTTrainer", "UnslothTrainer", "Seq2SeqTrainer")
#: Collective methods of a trainer.
COLLECTIVE_METHODS = frozenset({"train", "evaluate", "predict", "hyperparameter_search"})
#: Classes for a trainer's hyperparameters, by the package that defines them.
_ARGUMENTS = re.compile(
    r"(trl(\.\w+)*\.\w+Config|(transformers|sentence_transformers|unsloth)(\.\w+)*\.\w*TrainingArguments"
    r"|(transformers|unsloth)(\.\w+)*\.\w*(SFT|GRPO|DPO|ORPO|KTO)Config|setfit(\.\w+)*\.TrainingArguments)"
)
#: TRL classes named `...Config` that are not training arguments.
_OTHER_CONFIGS = frozenset({"ModelConfig", "ScriptArguments", "DatasetMixtureConfig"})
#: Names of objects whose `train()` only switches a mode.
_MODEL_NAME = re.compile(r"(?i)model|net|policy|encoder|decoder|module|critic|actor|backbone|tokenizer|^self$|^super\b")
#: Functions that call the training of a trainer.
_TRAINING_FUNCTIONS = frozenset({"unsloth.unsloth_train", "unsloth.trainer.unsloth_train"})
_TRAINER_CLASS = re.compile(r"(?!Patch)\w*Trainer")
_TRAINER_NAME = re.compile(r"(^|_)trainer(_|\d|$)", re.IGNORECASE)


class Training:
    """The training calls of a notebook."""

    def __init__(self, tree: Tree) -> None:
        self.tree = tree

    @cached_property
    def arguments(self) -> list[cst.Call]:
        """The live calls that build training arguments (`SFTConfig(...)`, `TrainingArguments(...)`, subclasses).

        Calls whose result is not used are left out if another is used.
        """
        calls = [call for call in self.tree.live(cst.Call) if self.is_arguments(call)]
        return [call for call in calls if self._is_taken(call)] or calls

    def _is_taken(self, call: cst.Call) -> bool:
        """Return False if a call is bound to a name that no live code reads."""
        above = self.tree.parents[call]
        if not (isinstance(above, cst.Assign) and all(isinstance(target.target, cst.Name) for target in above.targets)):
            return True
        return any(self.tree.is_live(use) for name in self.tree.binds(above) for use in self.tree.loads(name))

    def is_arguments(self, call: cst.Call) -> bool:
        """Return whether a call builds training arguments."""
        is_config = bool(_ARGUMENTS.fullmatch(self.tree.family(call.func)))
        return (is_config and self.tree.class_name(call.func) not in _OTHER_CONFIGS) or self.is_chosen_config(call)

    def is_chosen_config(self, call: cst.Call) -> bool:
        """Return whether a call builds training arguments of a class chosen at run time, judged by its keywords."""
        if keyword(call, "per_device_train_batch_size") is None:
            return False
        maker = self.tree.value(call.func)
        if isinstance(maker, cst.Call):
            return self.tree.qualified(maker.func) == "getattr"
        unpacked = isinstance(self.tree.definition(maker), (cst.Assign, cst.For, cst.Param))
        return unpacked or isinstance(maker, (cst.IfExp, cst.Subscript))

    @cached_property
    def trainers(self) -> list[cst.Call]:
        """The live calls that build a trainer."""
        return [call for call in self.tree.live(cst.Call) if self.is_trainer_call(call)]

    @cached_property
    def trainer_classes(self) -> list[str]:
        """The names of the classes of `trainers`; for a user-defined class, that of its base in a library."""
        return [self.tree.class_name(call.func) for call in self.trainers]

    def is_trainer_call(self, call: cst.Call) -> bool:
        """Return whether a call builds a trainer of a library's class, or of a user-defined subclass."""
        is_named = _TRAINER_CLASS.fullmatch(self.tree.class_name(call.func)) is not None
        return is_named and not isinstance(self.tree.definition(self.tree.bases(call.func)[-1]), cst.ClassDef)

    def is_trainer(self, node: cst.BaseExpression) -> bool:
        """Return whether an expression is a trainer: built by a trainer class, or named like a trainer."""
        value, name = self.tree.value(node), node.attr if isinstance(node, cst.Attribute) else node
        is_named = isinstance(name, cst.Name) and bool(_TRAINER_NAME.search(name.value))
        return is_named or (isinstance(value, cst.Call) and self.is_trainer_call(value))

    @cached_property
    def calls(self) -> list[cst.Call]:
        """The live calls that train, evaluate or predict, also in functions."""
        functions, calls = _TRAINING_FUNCTIONS, self.tree.live(cst.Call)
        return [call for call in calls if self.tree.qualified(call.func) in functions or self._trains(call.func)]

    def _trains(self, node: cst.BaseExpression) -> bool:
        """Return whether a node is a collective method of a trainer: `trainer.train`, also through `getattr`."""
        owner, method = self.tree.member(node) or (node, "")
        if method not in COLLECTIVE_METHODS:
            return False
        if self.is_trainer(owner):
            return True
        # if trainers are built, an unknown object with `train` counts as one
        return method == "train" and bool(self.trainers) and not _MODEL_NAME.search(self.tree.text(owner))

    @cached_property
    def backward_calls(self) -> list[cst.Call]:
        """The live calls of `loss.backward()`."""
        return [call for call in self.tree.live(cst.Call) if method(call) == "backward"]

    @cached_property
    def events(self) -> list[cst.CSTNode]:
        """The calls outside functions that train: directly, through a user-defined function, or through a value."""
        calls = [node for node, is_value in self._steps if not is_value]
        return self.tree.in_order(node for node in calls if self.tree.enclosing_function(node) is None)

    @cached_property
    def handed_on(self) -> list[cst.CSTNode]:
        """The values that train when they are called: `trainer.train` in `go = trainer.train`."""
        return self.tree.in_order(node for node, is_value in self._steps if is_value)

    @cached_property
    def _steps(self) -> list[tuple[cst.CSTNode, bool]]:
        """The calls that train, the values that train when called, and their transitive uses; True marks a value."""
        tree = self.tree
        methods = [n for kind in (cst.Attribute, cst.Call) for n in tree.live(kind) if self._trains(n)]
        values = [n for n in methods if not self._is_called_or_set(n)]
        return reached([*((call, False) for call in self.calls), *((value, True) for value in values)], self._onward)

    @cached_property
    def _collective(self) -> list[int]:
        """The offsets of all collective nodes, also those in functions."""
        return sorted(self.tree.start(node) for node, _ in self._steps)

    def is_collective(self, node: cst.CSTNode) -> bool:
        """Return whether code is collective: it trains, so that all processes must run it together."""
        start, end = self.tree.span(node)
        return bisect.bisect_left(self._collective, start) < bisect.bisect_left(self._collective, end)

    def _onward(self, step: tuple[cst.CSTNode, bool]) -> Iterator[tuple[cst.CSTNode, bool]]:
        """Yield the uses of a call's enclosing function, or the ends of a value; True marks a value, False a call."""
        node, is_value = step
        owner = self.tree.enclosing_function(node)
        if is_value:
            yield from ((end, False) for end in self.tree.sinks(node) if self.tree.is_live(end))
        elif owner is not None:
            for use in [owner] if isinstance(owner, cst.Lambda) else self._uses(owner):
                is_called = self._is_called_or_set(use)
                yield (self.tree.parents[use], False) if is_called else (use, True)

    def _is_called_or_set(self, node: cst.CSTNode) -> bool:
        """Return whether a node is the function of a call, or the target of an assignment."""
        return isinstance(self.tree.parents[node], cst.AssignTarget) or self.tree.call_of(node) is not None

    def _uses(self, function: cst.FunctionDef) -> list[cst.CSTNode]:
        """Return the nodes in live code that name a user-defined function, or call a method of this name."""
        named = self.tree.named(function)
        if not isinstance(self.tree.scope(function), cst.ClassDef):
            return named
        if function.name.value.startswith("__"):
            return [self.tree.call_of(use) or use for use in named]
        return [use for use in named if self.tree.call_of(use) is not None]

    @cached_property
    def last(self) -> Statement | None:
        """The top-level statement after which no process needs the others; None if nothing trains."""
        return self.tree.top_statement(max(self.events, key=self.tree.start)) if self.events else None

    @cached_property
    def end(self) -> int:
        """The offset where the last top-level training statement ends; -1 if nothing trains."""
        return self.tree.span(self.last)[1] if self.last is not None else -1

    @cached_property
    def trained(self) -> int:
        """The offset where the last top-level statement that trains ends; evaluations may come after it."""
        training = [event for event in self.events if method(event) not in ("evaluate", "predict")]
        return max((self.tree.span(self.tree.top_statement(event))[1] for event in training), default=self.end)

    def is_before_end(self, node: cst.CSTNode) -> bool:
        """Return whether code starts before the end of the last training statement."""
        return self.tree.start(node) < self.end
