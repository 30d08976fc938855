"""Steps on the way of a value through code, and all that such steps lead to."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable
from typing import TYPE_CHECKING, TypeVar

import libcst as cst

if TYPE_CHECKING:
    from nb2ddp.syntax.tree import Statement, Tree

Thing = TypeVar("Thing", bound=Hashable)
Part = TypeVar("Part")


def reached(starts: Iterable[Thing], onward: Callable[[Thing], Iterable[Thing]]) -> list[Thing]:
    """Some things, what `onward` gives for each of them, what it gives for that, and so on, each once."""
    known: dict[Thing, None] = {}
    pending = list(starts)[::-1]
    while pending:
        thing = pending.pop()
        if thing not in known:
            known[thing] = None
            pending += list(onward(thing))[::-1]
    return list(known)


def grouped(pairs: Iterable[tuple[Thing, Part]]) -> defaultdict[Thing, list[Part]]:
    """The second parts of pairs by the first ones, in order; none by anything else."""
    found = defaultdict[Thing, list[Part]](list)
    for first, second in pairs:
        found[first].append(second)
    return found


def receiver(node: cst.CSTNode | None) -> cst.BaseExpression | None:
    """The object that a call is a method of: `app` of `app.run()`; None for all else."""
    return node.func.value if isinstance(node, cst.Call) and isinstance(node.func, cst.Attribute) else None


def first_import(tree: Tree) -> int:
    """Where Unsloth is first imported; 0 where it is not."""
    return min((tree.start(statement) for statement, *_ in tree.imports("unsloth")), default=0)


def called_as(tree: Tree, call: cst.Call) -> str:
    """The name of the method or function that a call is of, without what stands before it."""
    function = call.func
    return function.attr.value if isinstance(function, cst.Attribute) else tree.qualified(function).rpartition(".")[2]


def root_of(node: cst.CSTNode) -> cst.CSTNode:
    """Return what an item or an attribute belongs to: `x` of `x.a[0]`; of all else, itself."""
    while isinstance(node, (cst.Attribute, cst.Subscript)):
        node = node.value
    return node


def key_of(tree: Tree, node: cst.Subscript) -> object:
    """The constant key of an item: `"audio"` of `row["audio"]`; `...` for any other."""
    part = node.slice[0].slice
    return tree.literal(part.value) if isinstance(part, cst.Index) else ...


def argument_of(tree: Tree, node: cst.CSTNode) -> cst.Call | None:
    """The call that is given a node as an argument."""
    above = tree.parents[node]
    call = tree.parents[above] if isinstance(above, cst.Arg) else None
    return call if isinstance(call, cst.Call) else None


def returned(tree: Tree, function: cst.CSTNode | None) -> list[cst.BaseExpression]:
    """What a function of the notebook returns; nothing for all else."""
    if not isinstance(function, cst.FunctionDef):
        return []
    returns = [each for each in tree.within(function, cst.Return) if tree.function(each) is function]
    return [each.value for each in returns if each.value is not None]


def makers(tree: Tree, node: cst.CSTNode) -> list[cst.Call]:
    """The calls that an expression is made by, in it and in what the names in it stand for."""
    return [call for part in tree.backward_slice(node) for call in tree.within(part, cst.Call)]


def callees(tree: Tree, calls: Iterable[cst.Call]) -> list[cst.FunctionDef]:
    """The user-defined functions that calls run by their names."""
    definitions = (tree.definition(call.func) for call in calls)
    return [function for function in definitions if isinstance(function, cst.FunctionDef)]


def called(tree: Tree, code: cst.CSTNode) -> list[cst.FunctionDef]:
    """The user-defined functions that code runs by their names, those that they run, and so on."""

    def inside(node: cst.CSTNode) -> list[cst.FunctionDef]:
        return callees(tree, tree.within(node, cst.Call))

    return [each for each in reached(inside(code), inside) if each is not code]


def stops(tree: Tree, test: Statement) -> bool:
    """True for an `assert`, and for a test below which the notebook raises or exits where its answer is no."""
    if not isinstance(test, cst.If):
        return bool(tree.within(test, cst.Assert))
    branch = test.body if "not " in tree.text(test.test) else test.orelse
    return branch is not None and bool(tree.within(branch, cst.Raise) or "exit(" in tree.text(branch))


#: What an exception leaves.
_SUPPRESS = "contextlib.suppress"
#: What may leave out some of what stands in it.
_MAY_SKIP = (
    cst.If, cst.IfExp, cst.BooleanOperation, cst.MatchCase, cst.Try, cst.TryStar, cst.For, cst.While,
    cst.FunctionDef, cst.Lambda, cst.BaseComp, cst.CompFor,
)  # fmt: skip


def is_unconditional(tree: Tree, node: cst.CSTNode, in_function: bool = False) -> bool:
    """Whether module-level code surely comes by a node: it stands in no function, branch or loop but `if True:`.

    With `in_function`, whether the function that it stands in does.
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
