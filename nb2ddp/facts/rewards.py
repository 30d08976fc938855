"""The notebook's own functions that a GRPO trainer calls in each generation: rewards and rollouts.

Every process calls it on its own completions, and those of one prompt may lie on several processes (TRL gathers the
rewards of all before it compares them: `GRPOTrainer._calculate_rewards`). Tools are not among it: how often they are
called is the model's choice, in each process another.
"""

from __future__ import annotations

from functools import cached_property

import libcst as cst

from nb2ddp.facts.execution import Execution, handed_on
from nb2ddp.facts.flow import reached
from nb2ddp.syntax.tree import Function

#: Arguments under which a GRPO trainer takes code to call; the first may come second without its name.
_CALLED = ("reward_funcs", "rollout_func")


class Rewards:
    """The functions that a notebook hands to its GRPO trainers, and all that these call.

    Args:
        execution: the notebook's steps.

    Attributes:
        entries: the functions that the trainer itself calls; of an object, its class's `__call__`.
        rollouts: those of them that make the completions.
        names: the names through which the notebook hands them on.
    """

    def __init__(self, execution: Execution) -> None:
        self.execution, self.tree = execution, execution.tree
        trainers = execution.training.trainers
        arguments = [each for trainer in trainers for each in execution.arguments(trainer)]
        given = [value for name, value in arguments if name in _CALLED]
        self.rollouts = handed_on(self.tree, [value for name, value in arguments if name == _CALLED[1]])[0]
        functions, self.names = handed_on(self.tree, given)
        methods = [each for each in functions if isinstance(self.tree.scope(each), cst.ClassDef)]
        called = [each for each in methods if isinstance(each, cst.FunctionDef) and each.name.value == "__call__"]
        self.entries = [each for each in functions if each in called or each not in methods]

    def reached(self, entry: Function) -> set[Function]:
        """A function with all functions and methods of the notebook that it calls or hands on."""
        return set(reached([entry], self.execution.uses))

    @cached_property
    def functions(self) -> set[Function]:
        """Every function that runs during training."""
        return {function for entry in self.entries for function in self.reached(entry)}

    def calls(self, entry: Function) -> list[cst.Call]:
        """The live calls that a function leads to, in the notebook's order."""
        found = {call for function in self.reached(entry) for call in self.tree.within(function, cst.Call)}
        return self.tree.in_order(call for call in found if self.tree.is_live(call))

    def is_only_here(self, node: cst.CSTNode) -> bool:
        """True for code that runs during training and at no other time before its end."""
        return all(self.execution.owner(at) in self.functions for at in reached([node], self._called_from))

    def _called_from(self, place: cst.CSTNode) -> list[cst.CSTNode]:
        """Where the function around a place is used, other than to hand it on."""
        owner = self.execution.owner(place)
        uses = self.tree.uses(owner) if isinstance(owner, cst.FunctionDef) else []
        return [use for use in uses if use not in self.names and self.execution.runs(use)]
