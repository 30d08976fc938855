"""Does code keep the order of its inputs?"""

from __future__ import annotations

import libcst as cst

from nb2ddp.syntax.tree import ADDING, Tree, keyword, method

_LOSES_ORDER = frozenset(
    "all any bool collections.Counter frozenset len math.fsum max min numpy.max numpy.mean numpy.min numpy.sum print"
    " set sorted statistics.fmean statistics.mean sum".split()
)


def is_order_lost(tree: Tree, node: cst.CSTNode) -> bool:
    """True inside what sorts or counts what it is given, or collects it without an order; for a list sorted later."""
    return _is_sorted_next(tree, node) or any(
        isinstance(above, cst.SetComp) or (isinstance(above, cst.Call) and tree.qualified(above.func) in _LOSES_ORDER)
        for above in tree.inside_statement(node)
    )


def _is_sorted_next(tree: Tree, node: cst.CSTNode) -> bool:
    """True for what is bound to a name whose order no use keeps, beside tests of it alone, or the first one sorts."""
    bound = tree.around(node, cst.Assign)
    uses = [] if bound is None or tree.function(bound) is not tree.function(node) else tree.bound_uses(bound)
    used = [use for use in uses if not isinstance(tree.parents[use], (cst.If, cst.UnaryOperation))]
    if used and all(is_order_lost(tree, use) and not _is_keyed(tree, use) for use in used):
        return True
    call = tree.call_of(tree.parents[used[0]]) if used else None
    return call is not None and method(call) == "sort" and not call.args and isinstance(tree.parents[call], cst.Expr)


def _is_keyed(tree: Tree, node: cst.CSTNode) -> bool:
    """True in a call with a `key`: what it finds alike keeps its order."""
    return any(isinstance(above, cst.Call) and keyword(above, "key") for above in tree.inside_statement(node))


def collects(tree: Tree, loop: cst.For | cst.CompFor) -> bool:
    """True for a loop that collects what it makes, in its own order."""
    added = {method(call) for call in tree.within(loop, cst.Call)}
    return isinstance(loop, cst.CompFor) or bool(
        added & ADDING or tree.within(loop, cst.AugAssign) or tree.within(loop, cst.Yield)
    )
