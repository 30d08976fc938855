"""State that code leaves in memory, and that other ranks would lack if one rank ran the code for all."""

from __future__ import annotations

import libcst as cst

from nb2ddp.facts.effects import Does, Effects, samples
from nb2ddp.facts.flow import callees, reached, receiver, root_of
from nb2ddp.facts.training import Training
from nb2ddp.syntax.tree import Statement


class Traces:
    """Tells whether statements and functions change state that other code reads.

    Args:
        training: the notebook's training calls.
        effects: what the notebook's calls do.
    """

    def __init__(self, training: Training, effects: Effects) -> None:
        self.tree = effects.tree
        self.training = training
        self._does = effects.of
        self._is_shell = effects.is_shell

    def _calls(self, code: cst.CSTNode) -> list[cst.Call]:
        return [call for call in self.tree.within(code, cst.Call) if self.tree.is_live(call)]

    def leaves(self, statement: Statement) -> bool:
        """Return whether a statement binds or changes state for other code, changes a random generator, or jumps."""
        calls = self._calls(statement)
        return (
            self.tree.is_bound_for_later(statement)
            or self._leads_elsewhere(statement)
            or not self._keeps_to_itself(statement, calls)
            or not all(map(self.only_writes, callees(self.tree, calls)))
            or not self._is_harmless(statement, calls)
        )

    def _leads_elsewhere(self, statement: Statement) -> bool:
        """Return whether a statement returns from the enclosing function, or breaks or continues an enclosing loop."""
        tree, function = self.tree, self.tree.function(statement)
        jumps = [*tree.within(statement, cst.Break), *tree.within(statement, cst.Continue)]
        loops = [loop for jump in jumps if (loop := tree.around(jump, cst.For, cst.While)) is not None]
        out = any(tree.start(loop) < tree.start(statement) for loop in loops)
        return out or any(tree.function(each) is function for each in tree.within(statement, cst.Return))

    def only_writes(self, function: cst.FunctionDef) -> bool:
        """Return whether a function leaves no trace, and calls no function that acts and has other callers."""
        functions = reached([function], lambda caller: callees(self.tree, self._calls(caller.body)))
        shared = any(self._acts_for_others(callee, functions) for callee in functions[1:])
        return not shared and all(map(self._leaves_no_trace, functions))

    def _acts_for_others(self, function: cst.FunctionDef, users: list[cst.FunctionDef]) -> bool:
        """Return whether a function acts and has callers other than these."""
        alone = all(self.tree.function(call) in users for call in self.tree.calls_of(function))
        return not alone and any(self._does(call) & Does.ACT for call in self.tree.within(function, cst.Call))

    def _leaves_no_trace(self, function: cst.FunctionDef) -> bool:
        """Return whether the lines of a function, without its callees, change nothing outside it."""
        tree, calls = self.tree, self._calls(function.body)
        given = {param.name.value for param in tree.within(function.params, cst.Param)}
        return (
            not any(tree.within(function, kind) for kind in (cst.Global, cst.Nonlocal, cst.Yield, cst.Del))
            and self._keeps_to_itself(function, calls, given)
            and self._is_harmless(function, calls)
        )

    def _keeps_to_itself(self, code: cst.CSTNode, calls: list[cst.Call], given: set[str] | None = None) -> bool:
        """Return whether code changes only objects that it made, and no random generator except to sample answers.

        The changed object is `x` in `x.a = 1`, `x[0] = 1`, `x += y`, `x.append(1)`, `next(x)`.
        """
        tree = self.tree
        moves = Does.DRAW | Does.SEED
        if any(self._does(call) & moves and not samples(tree, call) for call in calls):
            return False
        grown = [node.target for node in tree.within(code, cst.AugAssign)]
        changed = [target.value for target in tree.targets(code) if isinstance(target, (cst.Attribute, cst.Subscript))]
        changed += [name for name in grown if isinstance(name, cst.Name) and (given is None or name.value in given)]
        changed += [call.args[0].value for call in calls if tree.qualified(call.func) == "next" and call.args]
        owners = [receiver(call) for call in calls if self._does(call) & Does.CHANGE]
        return all(self._is_its_own(code, owner) for owner in (*changed, *filter(None, owners)))

    def _is_its_own(self, code: cst.CSTNode, node: cst.CSTNode) -> bool:
        """Return whether code made an object: it binds it to the result of a call or to a display, or opens it.

        The result of a method belongs to the owner of its receiver: `known.get("a")`, but not `json.load(file)`.
        """

        def owner(node: cst.CSTNode) -> cst.CSTNode | None:
            made = self._made_in(code, node)
            is_own = isinstance(made, cst.Call) and self.tree.qualified(made.func).startswith(".")
            return receiver(made) if is_own else None

        made = self._made_in(code, self.tree.followed(node, owner)[-1])
        return made is not None and not isinstance(made, (cst.Name, cst.Attribute, cst.Subscript))

    def _made_in(self, code: cst.CSTNode, node: cst.CSTNode) -> cst.CSTNode | None:
        """Return what code binds a name to, also by `figure, axes = plots()`, or its `with`; for `x.a[0]`, of `x`."""
        node = root_of(node)
        binding, (start, end) = self.tree.binding(node), self.tree.span(code)
        if binding is None or not start <= binding.offset < end:
            return None
        if isinstance(binding.node, cst.Assign) and isinstance(binding.node.value, cst.Call):
            return binding.node.value
        return binding.node if isinstance(binding.node, cst.WithItem) else binding.value

    def _is_harmless(self, code: cst.CSTNode, calls: list[cst.Call]) -> bool:
        """Return whether calls that are statements only write, ask, report, or change objects that the code made.

        In a test, loop or `try`, this includes methods whose result is bound: `added = tokenizer.add_tokens(tokens)`.
        """
        tree, act, is_block = self.tree, Does.ACT | Does.TELL | Does.ASK, isinstance(code, (cst.If, cst.For, cst.Try))
        lines = [call for call in calls if isinstance(tree.parents[call], cst.Expr)]
        bound = [call for call in calls if is_block and isinstance(tree.parents[call], cst.Assign)]
        lines += [call for call in bound if tree.qualified(call.func).startswith(".")]
        unknown = [
            call for call in lines if not (self._does(call) & act or callees(self.tree, [call]) or self._is_shell(call))
        ]
        return all((owner := receiver(call)) is not None and self._is_its_own(code, owner) for call in unknown)
