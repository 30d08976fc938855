"""Steps on the way of a value through code, and all that such steps lead to."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import TYPE_CHECKING, TypeVar

import libcst as cst

if TYPE_CHECKING:
    from nb2ddp.syntax.tree import Statement, Tree

Thing = TypeVar("Thing", bound=Hashable)


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


def owner_of(node: cst.CSTNode | None) -> cst.BaseExpression | None:
    """The object that a call is a method of: `app` of `app.run()`; None for all else."""
    return node.func.value if isinstance(node, cst.Call) and isinstance(node.func, cst.Attribute) else None


def taker(tree: Tree, node: cst.CSTNode) -> cst.Call | None:
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


def stops(tree: Tree, test: Statement) -> bool:
    """True for an `assert`, and for a test below which the notebook raises or exits where its answer is no."""
    if not isinstance(test, cst.If):
        return bool(tree.within(test, cst.Assert))
    branch = test.body if "not " in tree.text(test.test) else test.orelse
    return branch is not None and bool(tree.within(branch, cst.Raise) or "exit(" in tree.text(branch))


def suppresses(tree: Tree, item: cst.WithItem) -> bool:
    """True for `with contextlib.suppress(...)`, which an exception leaves."""
    return isinstance(item.item, cst.Call) and tree.qualified(item.item.func) == "contextlib.suppress"


def is_tried(tree: Tree, node: cst.CSTNode, name: str = "", within: cst.CSTNode | None = None) -> bool:
    """True where the notebook goes on without what a node reads: in a `try`, below a test, in a function.

    A `try` that must succeed is none. A branch that must run is below no test, nor is what asks whether the variable of
    this name is set: the notebook asks for it then. What stands around the function `within` does not count.
    """
    inner = node
    for above in tree.ancestors(node):
        if above is within:
            return False
        if isinstance(above, cst.Try) and inner is above.body and not must_succeed(tree, above, node):
            return True
        if isinstance(above, cst.With) and any(suppresses(tree, item) for item in above.items):
            return True
        test = above.test if isinstance(above, (cst.If, cst.IfExp, cst.While)) else inner
        if inner is not test and not (must_run(tree, above, inner) or (name and name in tree.texts(test))):
            return True
        if isinstance(above, (cst.FunctionDef, cst.Lambda)):
            return True
        inner = above
    return False


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
        if isinstance(above, cst.With) and any(suppresses(tree, item) for item in above.items):
            return False
        inner = above
    return True


def must_run(tree: Tree, above: cst.CSTNode, branch: cst.CSTNode) -> bool:
    """True for a branch of a test without which the notebook does not come to its end.

    Its test is `True`, or a name that is bound once, to `True`; or it binds a name that nothing else has bound where
    later code surely reads it.
    """
    if isinstance(above, (cst.If, cst.IfExp, cst.While)) and tree.fixed(above.test) in (True, 1):
        return branch is above.body
    if not isinstance(above, cst.If) or tree.parents[above] is not tree.module:
        return False
    if (above, branch) not in tree.known:  # the uses may stand in branches of which the same is asked
        tree.known[above, branch] = any(not is_tried(tree, use) for use in _read_later(tree, above, tree.span(branch)))
    return tree.known[above, branch]


def must_succeed(tree: Tree, tried: cst.Try, node: cst.CSTNode) -> bool:
    """True for what a `try` does before it binds a name that nothing else binds before later code surely reads it."""
    if tree.parents[tried] is not tree.module:
        return False
    later = _read_later(tree, tried, (tree.start(node) + 1, tree.span(tried.body)[1]))
    return any(tree.around(use, cst.Try) is None and not is_tried(tree, use) for use in later)


def _read_later(tree: Tree, above: cst.CSTNode, part: tuple[int, int]) -> list[cst.Name]:
    """Where names are read below a statement that this part of it alone has bound until then."""
    (start, end), after = part, tree.span(above)[1]

    def is_own(use: cst.Name) -> bool:
        before = [by.offset for by in tree.bindings(use.value) if by.offset < tree.start(use)]
        return bool(before) and all(start <= offset <= end for offset in before) and tree.is_live(use)

    later = [use for name in tree.binds(above) for use in tree.loads(name) if tree.start(use) > after]
    return [use for use in later if is_own(use)]
