"""User-defined functions that a GRPO trainer calls in each generation: rewards and rollouts.

Every process calls them on its completions, and those of one prompt may be on several processes (TRL gathers all
rewards before it compares them: `GRPOTrainer._calculate_rewards`). Tools are not included: the model decides how often
to call them, which differs between processes.
"""

from __future__ import annotations

from functools import cached_property

import libcst as cst

from nb2ddp.facts.execution import REWARDS, Execution, handed_on
from nb2ddp.facts.flow import reached
from nb2ddp.syntax.tree import Function


class Rewards:
    """The functions that a notebook passes to its GRPO trainers, and all that these call.

    Args:
        execution: which process runs what, and when.

    Attributes:
        entries: the functions that the trainer calls; for an object, the `__call__` of its class.
        rollouts: the functions that make the completions.
        names: the names through which the notebook passes them on.
    """

    def __init__(self, execution: Execution) -> None:
        self.execution, self.tree = execution, execution.tree
        trainers = execution.training.trainers
        arguments = [each for trainer in trainers for each in execution.arguments(trainer)]
        given = [value for name, value in arguments if name in REWARDS]
        self.rollouts = handed_on(self.tree, [value for name, value in arguments if name == REWARDS[1]])[0]
        functions, self.names = handed_on(self.tree, given)
        methods = [each for each in functions if isinstance(self.tree.scope(each), cst.ClassDef)]
        called = [each for each in methods if isinstance(each, cst.FunctionDef) and each.name.value == "__call__"]
        self.entries = [each for each in functions if each in called or each not in methods]

    def reached(self, entry: Function) -> set[Function]:
        """Return a function with all user-defined functions and methods that it calls or passes on."""
        return set(reached([entry], self.execution.uses))

    @cached_property
    def functions(self) -> set[Function]:
        """All functions that run during training."""
        return {function for entry in self.entries for function in self.reached(entry)}

    def calls(self, entry: Function) -> list[cst.Call]:
        """Return the live calls to which a function leads, in the notebook's order."""
        found = {call for function in self.reached(entry) for call in self.tree.within(function, cst.Call)}
        return self.tree.in_order(call for call in found if self.tree.is_live(call))

    def is_only_here(self, node: cst.CSTNode) -> bool:
        """Return whether code runs during training and at no other time before training ends."""
        return all(self.execution.owner(at) in self.functions for at in reached([node], self._called_from))

    def _called_from(self, place: cst.CSTNode) -> list[cst.CSTNode]:
        """Return the uses of the enclosing function, except those that pass it on."""
        owner = self.execution.owner(place)
        uses = self.tree.uses(owner) if isinstance(owner, cst.FunctionDef) else []
        return [use for use in uses if use not in self.names and self.execution.runs(use)]
