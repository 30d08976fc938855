"""State that code leaves in memory, and that other ranks would miss if one rank ran it for all."""

from __future__ import annotations

from typing import Final

import libcst as cst

from nb2ddp.facts.effects import Does, Effects, samples
from nb2ddp.facts.training import Training
from nb2ddp.syntax.tree import Statement

_JUMPS: Final = (cst.Break, cst.Continue)


class Traces:
    """Whether statements and functions change what is read elsewhere.

    Args:
        training: where it trains.
        effects: what its calls do.
    """

    def __init__(self, training: Training, effects: Effects) -> None:
        self.tree = effects.tree
        self.training = training
        self._does = effects.of
        self._is_shell = effects.is_shell

    def _callee(self, call: cst.Call) -> cst.FunctionDef | None:
        """The function of the notebook that a call calls by its name."""
        made = self.tree.definition(call.func)
        return made if isinstance(made, cst.FunctionDef) else None

    def only_acts(self, code: cst.CSTNode) -> bool:
        """True for code whose lines write, fetch, run or tell something, bind no name and need no other process."""
        lines = self.tree.within(code, cst.SimpleStatementLine)
        return not self.training.is_joint(code) and all(self._is_act(small) for line in lines for small in line.body)

    def _is_act(self, small: cst.BaseSmallStatement) -> bool:
        call = small.value if isinstance(small, cst.Expr) else None
        if not isinstance(call, cst.Call):
            return isinstance(small, cst.Pass)
        return bool(self._does(call) & Does.ACT) or self.tree.qualified(call.func) == "print" or self._is_shell(call)

    def leaves(self, statement: Statement) -> bool:
        """True for a statement that binds or changes what is read outside it, moves a generator, or leads elsewhere."""
        calls = [call for call in self.tree.within(statement, cst.Call) if self.tree.is_live(call)]
        return (
            self.tree.is_bound_for_later(statement)
            or self._leads_elsewhere(statement)
            or not self._keeps_to_itself(statement, calls)
            or not all(self.only_writes(callee) for call in calls if (callee := self._callee(call)) is not None)
        )

    def returns(self, statement: Statement) -> bool:
        """True for a statement that returns from the function around it."""
        function = self.tree.function(statement)
        return any(self.tree.function(each) is function for each in self.tree.within(statement, cst.Return))

    def _leads_elsewhere(self, statement: Statement) -> bool:
        """True for a statement that returns from the function around it, or ends or goes on with a loop around it."""
        tree, jumps = self.tree, [each for kind in _JUMPS for each in self.tree.within(statement, kind)]
        loops = [next(a for a in tree.ancestors(jump) if isinstance(a, (cst.For, cst.While))) for jump in jumps]
        return self.returns(statement) or any(loop not in tree.within(statement, type(loop)) for loop in loops)

    def only_writes(self, function: cst.FunctionDef, below: frozenset[cst.FunctionDef] = frozenset()) -> bool:
        """True for a function that leaves no trace, and calls nothing that others call and that writes too."""
        tree, below = self.tree, below | {function}
        if any(tree.within(function, kind) for kind in (cst.Global, cst.Nonlocal, cst.Yield, cst.Del)):
            return False
        calls = [call for call in tree.within(function.body, cst.Call) if tree.is_live(call)]
        given = {param.name.value for param in tree.within(function.params, cst.Param)}
        if not self._keeps_to_itself(function, calls, given):
            return False
        for call in calls:
            callee = self._callee(call)
            if callee is None or callee in below:
                continue
            alone = all(tree.function(other) in below for other in self.tree.calls_of(callee))
            writes_too = any(self._does(each) & Does.ACT for each in tree.within(callee, cst.Call))
            if (writes_too and not alone) or not self.only_writes(callee, below):
                return False
        return all(self._is_harmless(function, call) for call in calls if isinstance(tree.parents[call], cst.Expr))

    def _keeps_to_itself(self, code: cst.CSTNode, calls: list[cst.Call], given: set[str] | None = None) -> bool:
        """True for code that moves no generator but by sampling answers, and changes only what it has made itself.

        A change is of `x` in `x.a = 1`, `x[0] = 1`, `x += y`, `x.append(1)`, `next(x)`.
        """
        tree = self.tree
        moves = Does.DRAW | Does.SEED
        if any(self._does(call) & moves and not samples(tree, call) for call in calls):
            return False
        grown = [node.target for node in tree.within(code, cst.AugAssign)]
        changed = [target.value for target in tree.targets(code) if isinstance(target, (cst.Attribute, cst.Subscript))]
        changed += [name for name in grown if isinstance(name, cst.Name) and (given is None or name.value in given)]
        changed += [call.args[0].value for call in calls if tree.qualified(call.func) == "next" and call.args]
        methods = [call.func for call in calls if self._does(call) & Does.CHANGE]
        changed += [method.value for method in methods if isinstance(method, cst.Attribute)]
        return all(self._is_its_own(code, owner) for owner in changed)

    def _is_its_own(self, code: cst.CSTNode, node: cst.BaseExpression, depth: int = 8) -> bool:
        """True for an object that code has made: bound there to what a call or a display gives, or opened."""
        while isinstance(node, (cst.Attribute, cst.Subscript)):
            node = node.value
        tree = self.tree
        binding = tree.binding(node)
        start, end = tree.span(code)
        if binding is None or not start <= binding.offset < end or isinstance(binding.node, cst.Param):
            return False
        made = binding.value
        if isinstance(binding.node, cst.Assign) and isinstance(binding.node.value, cst.Call):
            made = binding.node.value  # also of `figure, axes = subplots()`
        if isinstance(made, cst.Call) and isinstance(made.func, cst.Attribute):  # `json.load(f)`, not `known.get("a")`
            imported = not tree.qualified(made.func).startswith(".")
            return imported or (depth > 0 and self._is_its_own(code, made.func, depth - 1))
        if made is not None:
            return not isinstance(made, (cst.Name, cst.Attribute, cst.Subscript))
        return isinstance(binding.node, cst.WithItem)

    def _is_harmless(self, function: cst.FunctionDef, call: cst.Call) -> bool:
        """True for a call on a line of its own that writes, tells something, or changes what the function has made."""
        owner = call.func.value if isinstance(call.func, cst.Attribute) else None
        return (
            self._callee(call) is not None
            or self._is_shell(call)
            or bool(self._does(call) & (Does.ACT | Does.TELL))
            or (owner is not None and self._is_its_own(function, owner))
        )
