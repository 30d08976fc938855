"""Single steps of data flow and of the call graph, and their transitive closure."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import TYPE_CHECKING, TypeVar

import libcst as cst

if TYPE_CHECKING:
    from nb2ddp.syntax.tree import Statement, Tree

Thing = TypeVar("Thing", bound=Hashable)


def reached(starts: Iterable[Thing], onward: Callable[[Thing], Iterable[Thing]]) -> list[Thing]:
    """Return the transitive closure of `onward` from some starts, in depth-first order, each element once."""
    known: dict[Thing, None] = {}
    pending = list(starts)[::-1]
    while pending:
        thing = pending.pop()
        if thing not in known:
            known[thing] = None
            pending += list(onward(thing))[::-1]
    return list(known)


def receiver(node: cst.CSTNode | None) -> cst.BaseExpression | None:
    """Return the receiver of a method call: `app` of `app.run()`; None for any other node."""
    return node.func.value if type(node) is cst.Call and type(node.func) is cst.Attribute else None


def first_import(tree: Tree) -> int:
    """Return the offset of the first import of Unsloth; 0 if there is none."""
    return min((tree.start(statement) for statement, *_ in tree.imports("unsloth")), default=0)


def called_as(tree: Tree, call: cst.Call) -> str:
    """Return the name of the method or function that is called, without its receiver or module."""
    function = call.func
    return function.attr.value if isinstance(function, cst.Attribute) else tree.qualified(function).rpartition(".")[2]


def root_of(node: cst.CSTNode) -> cst.CSTNode:
    """Return the object at the root of items and attributes: `x` of `x.a[0]`; any other node itself."""
    while isinstance(node, (cst.Attribute, cst.Subscript)):
        node = node.value
    return node


def key_of(tree: Tree, node: cst.Subscript) -> object:
    """Return the constant key of an item: `"audio"` of `row["audio"]`; `...` for any other key."""
    part = node.slice[0].slice
    return tree.literal(part.value) if isinstance(part, cst.Index) and len(node.slice) == 1 else ...


def argument_of(tree: Tree, node: cst.CSTNode) -> cst.Call | None:
    """Return the call that has a node as an argument; None if there is none."""
    above = tree.parents[node]
    call = tree.parents[above] if isinstance(above, cst.Arg) else None
    return call if isinstance(call, cst.Call) else None


def returned(tree: Tree, function: cst.CSTNode | None) -> list[cst.BaseExpression]:
    """Return the expressions that a user-defined function returns; none for any other node."""
    if not isinstance(function, cst.FunctionDef):
        return []
    returns = [each for each in tree.within(function, cst.Return) if tree.function(each) is function]
    return [each.value for each in returns if each.value is not None]


def makers(tree: Tree, node: cst.CSTNode) -> list[cst.Call]:
    """Return the calls in the backward slice of an expression, which make its value."""
    return [call for part in tree.backward_slice(node) for call in tree.within(part, cst.Call)]


def callees(tree: Tree, calls: Iterable[cst.Call]) -> list[cst.FunctionDef]:
    """Return the user-defined functions that calls run by name."""
    definitions = (tree.definition(call.func) for call in calls)
    return [function for function in definitions if isinstance(function, cst.FunctionDef)]


def called(tree: Tree, code: cst.CSTNode) -> list[cst.FunctionDef]:
    """Return the user-defined functions that code runs by name, directly or indirectly."""

    def inside(node: cst.CSTNode) -> list[cst.FunctionDef]:
        return callees(tree, tree.within(node, cst.Call))

    return [each for each in reached(inside(code), inside) if each is not code]


def stops(tree: Tree, test: Statement) -> bool:
    """Return whether a statement is an `assert`, or a test on whose failure the notebook raises or exits."""
    if not isinstance(test, cst.If):
        return bool(tree.within(test, cst.Assert))
    branch = test.body if "not " in tree.text(test.test) else test.orelse
    return branch is not None and bool(tree.within(branch, cst.Raise) or "exit(" in tree.text(branch))


#: The context manager that suppresses an exception.
_SUPPRESS = "contextlib.suppress"
#: Nodes that may skip a part of their code.
_MAY_SKIP = (
    cst.If, cst.IfExp, cst.BooleanOperation, cst.MatchCase, cst.Try, cst.TryStar, cst.For, cst.While,
    cst.FunctionDef, cst.Lambda, cst.BaseComp, cst.CompFor,
)  # fmt: skip


def is_unconditional(tree: Tree, node: cst.CSTNode, in_function: bool = False) -> bool:
    """Return whether module-level code always runs a node: no function, branch or loop but `if True:` encloses it.

    With `in_function`, return whether its enclosing function always runs it.
    """
    inner = node
    for above in tree.ancestors(node):
        if in_function and isinstance(above, cst.FunctionDef):
            return True
        first = [getattr(above, field, None) for field in ("test", "left", "iter")]
        if (
            isinstance(above, _MAY_SKIP)
            and inner not in first
            and not (isinstance(above, cst.If) and inner is above.body and tree.fixed(above.test) in (True, 1))
        ):
            return False
        if isinstance(above, cst.With) and any(tree.constructor(each.item) == _SUPPRESS for each in above.items):
            return False
        inner = above
    return True
