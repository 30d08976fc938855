"""Does code keep the order of its inputs?"""

from __future__ import annotations

import libcst as cst

from nb2ddp.syntax.tree import ADDING, Tree, method

_LOSES_ORDER = frozenset(
    "all any bool collections.Counter frozenset len math.fsum max min numpy.max numpy.mean numpy.min numpy.sum print"
    " set sorted statistics.fmean statistics.mean sum".split()
)


def is_order_lost(tree: Tree, node: cst.CSTNode) -> bool:
    """True inside what sorts or counts what it is given, or collects it without an order."""
    return any(
        isinstance(above, cst.SetComp) or (isinstance(above, cst.Call) and tree.qualified(above.func) in _LOSES_ORDER)
        for above in tree.inside_statement(node)
    )


def collects(tree: Tree, loop: cst.For | cst.CompFor) -> bool:
    """True for a loop that collects what it makes, in its own order."""
    added = {method(call) for call in tree.within(loop, cst.Call)}
    return isinstance(loop, cst.CompFor) or bool(
        added & ADDING or tree.within(loop, cst.AugAssign) or tree.within(loop, cst.Yield)
    )
