"""Where a notebook trains: its trainers, its training calls, and the statement after which training is over."""

from __future__ import annotations

import re
from functools import cached_property

import libcst as cst

from nb2ddp.tree import Statement, Tree

#: Trainer methods that every process must take part in.
COLLECTIVE_METHODS = frozenset({"train", "evaluate", "predict", "hyperparameter_search"})
#: Classes that hold a trainer's hyperparameters, by the package that defines them.
_ARGUMENTS = re.compile(
    r"(trl(\.\w+)*\.\w+Config|(transformers|sentence_transformers|unsloth)(\.\w+)*\.\w*TrainingArguments"
    r"|(transformers|unsloth)(\.\w+)*\.\w*(SFT|GRPO|DPO|ORPO|KTO)Config|setfit(\.\w+)*\.TrainingArguments)"
)
#: TRL classes named `...Config` that hold no training arguments.
_OTHER_CONFIGS = frozenset({"ModelConfig", "ScriptArguments", "DatasetMixtureConfig"})
#: Names of what has a `train()` of its own that only switches a mode.
_MODEL_NAME = re.compile(r"(?i)model|net|policy|encoder|decoder|module|critic|actor|backbone|tokenizer|^self$|^super\b")
#: Functions that train a trainer they are given.
_TRAINING_FUNCTIONS = frozenset({"unsloth.unsloth_train", "unsloth.trainer.unsloth_train"})
_TRAINER_CLASS = re.compile(r"(?!Patch)\w*Trainer")
_TRAINER_NAME = re.compile(r"(^|_)trainer(_|\d|$)", re.IGNORECASE)


class Training:
    """The training calls of a notebook."""

    def __init__(self, tree: Tree) -> None:
        self.tree = tree

    @cached_property
    def arguments(self) -> list[cst.Call]:
        """Live calls that build training arguments (`SFTConfig(...)`, `TrainingArguments(...)`, subclasses)."""
        return [c for c in self.tree.of(cst.Call) if self.is_arguments(c) and self.tree.is_live(c)]

    def is_arguments(self, call: cst.Call) -> bool:
        """True for a call that builds training arguments."""
        family = self.tree.family(call.func)
        return bool(_ARGUMENTS.fullmatch(family)) and family.rsplit(".", 1)[-1] not in _OTHER_CONFIGS

    @cached_property
    def trainers(self) -> list[cst.Call]:
        """Live calls that build a trainer."""
        return [c for c in self.tree.of(cst.Call) if self.is_trainer_call(c) and self.tree.is_live(c)]

    def is_trainer_call(self, call: cst.Call) -> bool:
        """True for a call of a trainer class, the notebook's own subclasses included."""
        return bool(_TRAINER_CLASS.fullmatch(self.tree.family(call.func).rsplit(".", 1)[-1]))

    def is_trainer(self, node: cst.BaseExpression) -> bool:
        """True for an expression that holds a trainer: built by a trainer class, or named as one."""
        if isinstance(node, cst.Call):
            return self.is_trainer_call(node) or any(
                isinstance(a.value, cst.Name) and self.is_trainer(a.value) for a in node.args
            )
        if isinstance(node, cst.Attribute):
            return bool(_TRAINER_NAME.search(node.attr.value))
        if not isinstance(node, cst.Name):
            return False
        if _TRAINER_NAME.search(node.value):
            return True
        binding = self.tree.binding(node)
        return binding is not None and isinstance(binding.value, cst.Call) and self.is_trainer_call(binding.value)

    @cached_property
    def calls(self) -> list[cst.Call]:
        """Live calls that train, evaluate or predict, wherever they stand."""
        return [c for c in self.tree.of(cst.Call) if self._is_training_call(c) and self.tree.is_live(c)]

    def _is_training_call(self, call: cst.Call) -> bool:
        if self.tree.qualified(call.func) in _TRAINING_FUNCTIONS:
            return True
        if not isinstance(call.func, cst.Attribute) or call.func.attr.value not in COLLECTIVE_METHODS:
            return False
        if self.is_trainer(call.func.value):
            return True
        # where trainers are built, an object of unknown origin that trains is taken for one
        owner = call.func.value
        name = owner.attr.value if isinstance(owner, cst.Attribute) else self.tree.text(owner)
        return call.func.attr.value == "train" and bool(self.trainers) and not _MODEL_NAME.search(name)

    @cached_property
    def events(self) -> list[cst.Call]:
        """Calls at module level that train: directly, or through a function of the notebook."""
        pending: list[cst.Call] = list(self.calls)
        seen: set[cst.FunctionDef] = set()
        found = []
        while pending:
            call = pending.pop()
            function = self.tree.function(call)
            if function is None and (name := self._lambda_name(call)):
                pending += [c for c in self._calls_named(name) if c not in pending]
            elif function is None:
                found.append(call)
            elif function not in seen:
                seen.add(function)
                pending += self._calls_of(function)
        return sorted(set(found), key=self.tree.start)

    def _lambda_name(self, call: cst.Call) -> str | None:
        """The name of the lambda that a call stands in."""
        for above in self.tree.ancestors(call):
            if isinstance(above, cst.Lambda):
                owner = self.tree.parents[above]
                target = owner.targets[0].target if isinstance(owner, cst.Assign) else None
                return target.value if isinstance(target, cst.Name) else None
        return None

    def _calls_named(self, name: str) -> list[cst.Call]:
        calls = [c for c in self.tree.of(cst.Call) if isinstance(c.func, cst.Name) and c.func.value == name]
        return [call for call in calls if self.tree.is_live(call) and self._lambda_name(call) != name]

    def _calls_of(self, function: cst.FunctionDef) -> list[cst.Call]:
        name = function.name.value
        method = isinstance(self.tree.scope(function), cst.ClassDef)
        return [
            call
            for call in self.tree.of(cst.Call)
            if self.tree.is_live(call)
            and (
                (isinstance(call.func, cst.Attribute) and call.func.attr.value == name)
                if method
                else (isinstance(call.func, cst.Name) and call.func.value == name)
            )
        ]

    @cached_property
    def last(self) -> Statement | None:
        """The top-level statement with the last training call; None where nothing trains."""
        return self.tree.top_statement(self.events[-1]) if self.events else None

    @cached_property
    def end(self) -> int:
        """The offset where the last top-level training statement ends; -1 where nothing trains."""
        return self.tree.span(self.last)[1] if self.last is not None else -1

    def is_before_end(self, node: cst.CSTNode) -> bool:
        """True for code that runs up to the last training statement."""
        return self.tree.start(node) < self.end
