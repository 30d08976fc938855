"""What of the notebook's own code a GRPO trainer calls once a generation: rewards and rollouts.

Every process calls it on its own completions, and those of one prompt may lie on several processes (TRL gathers the
rewards of all before it compares them: `GRPOTrainer._calculate_rewards`). Tools are not among it: how often they are
called is the model's choice, in each process another.
"""

from __future__ import annotations

from collections import defaultdict
from functools import cached_property

import libcst as cst

from nb2ddp.facts.execution import Execution
from nb2ddp.syntax.arguments import passed
from nb2ddp.syntax.tree import Function, Tree, argument

#: Arguments under which a GRPO trainer takes code to call; the first may come second without its name.
_CALLED = ("reward_funcs", "rollout_func")
_FILLED_BY = frozenset({"append", "extend", "insert"})


class Rewards:
    """The functions that a notebook hands to its GRPO trainers, and all that these call.

    Args:
        execution: the notebook's steps.

    Attributes:
        entries: the functions that the trainer itself calls; of an object, its class's `__call__`.
        names: the names through which the notebook hands them on.
    """

    def __init__(self, execution: Execution) -> None:
        self.execution, self.tree = execution, execution.tree
        self.names = set[cst.CSTNode]()
        self.entries: list[Function] = []
        for trainer in execution.training.trainers:
            for name in _CALLED:
                found = passed(self.tree, trainer, name)
                positional = argument(trainer, name, 1) if name == _CALLED[0] and self._takes_rewards(trainer) else None
                value = found.value if found is not None else positional.value if positional is not None else None
                if value is not None:
                    self._follow(value)

    def _takes_rewards(self, trainer: cst.Call) -> bool:
        return "GRPO" in self.tree.class_name(trainer.func)

    def _follow(self, node: cst.CSTNode) -> None:
        """Collect the functions that an expression is made of, through names, lists, `partial` and makers."""
        for given in self.tree.within(node, cst.Lambda):
            self._enter(given)
        for name in self.tree.within(node, cst.Name):
            binding = self.tree.binding(name)
            if name in self.names or binding is None:
                continue
            self.names.add(name)
            if isinstance(binding.node, cst.FunctionDef):
                made = _returned(self.tree, binding.node)
                for function in made or [binding.node]:
                    self._enter(function)
            elif isinstance(binding.node, cst.ClassDef):
                for method in self.tree.within(binding.node, cst.FunctionDef):
                    if method.name.value == "__call__" and self.tree.scope(method) is binding.node:
                        self._enter(method)
            elif isinstance(binding.node, (cst.Assign, cst.AnnAssign)) and binding.node.value is not None:
                self._follow(binding.node.value)
                for added in self._added(name.value):
                    self._follow(added)

    def _enter(self, function: Function) -> None:
        if function not in self.entries:
            self.entries.append(function)

    def _added(self, name: str) -> list[cst.CSTNode]:
        """What `name.append(...)` and the like put into a list."""
        calls = [self.tree.parents[self.tree.parents[use]] for use in self.tree.loads(name)]
        filling = [call for call in calls if isinstance(call, cst.Call) and self._fills(call)]
        return [given.value for call in filling for given in call.args]

    @staticmethod
    def _fills(call: cst.Call) -> bool:
        return isinstance(call.func, cst.Attribute) and call.func.attr.value in _FILLED_BY

    @cached_property
    def _used_in(self) -> dict[cst.CSTNode | None, list[cst.FunctionDef]]:
        """The functions of the notebook by the function that names them."""
        found: dict[cst.CSTNode | None, list[cst.FunctionDef]] = defaultdict(list)
        for function in self.tree.of(cst.FunctionDef):
            for use in self.tree.uses(function):
                found[self.tree.owner(use)].append(function)
        return found

    def reached(self, entry: Function) -> set[Function]:
        """A function with all functions and methods of the notebook that it calls or hands on."""
        found, pending = set[Function](), [entry]
        while pending:
            function = pending.pop()
            if function not in found:
                found.add(function)
                pending += self._used_in[function]
        return found

    @cached_property
    def functions(self) -> set[Function]:
        """Every function that runs during training."""
        return {function for entry in self.entries for function in self.reached(entry)}

    def calls(self, entry: Function) -> list[cst.Call]:
        """The live calls that a function leads to, in the notebook's order."""
        found = {call for function in self.reached(entry) for call in self.tree.within(function, cst.Call)}
        return sorted((call for call in found if self.tree.is_live(call)), key=self.tree.start)

    def is_only_here(self, node: cst.CSTNode, depth: int = 8) -> bool:
        """True for code that runs during training and at no other time before its end."""
        owner = self.tree.owner(node)
        if owner not in self.functions or not depth:
            return False
        uses = self.tree.uses(owner) if isinstance(owner, cst.FunctionDef) else []
        others = [use for use in uses if use not in self.names and self.execution.runs(use)]
        return all(self.is_only_here(use, depth - 1) for use in others)


def _returned(tree: Tree, maker: cst.FunctionDef) -> list[Function]:
    """The functions that a function defines and gives back."""
    inner = [f for f in tree.within(maker, cst.FunctionDef) if f is not maker and tree.function(f) is maker]
    given = {name.value for back in tree.within(maker, cst.Return) for name in tree.within(back, cst.Name)}
    return [function for function in inner if function.name.value in given]
