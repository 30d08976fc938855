"""Does code keep the order of its inputs?"""

from __future__ import annotations

import libcst as cst

from nb2ddp.syntax.tree import ADDING, Tree, method

_LOSES_ORDER = frozenset(
    "all any bool collections.Counter frozenset len math.fsum max min numpy.max numpy.mean numpy.min numpy.sum print"
    " set sorted statistics.fmean statistics.mean sum".split()
)
#: What gives a number.
_NUMBERS = frozenset("abs float int len max min round sum".split())


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


def only_sums(tree: Tree, loop: cst.For) -> bool:
    """True for a loop that adds numbers up, counts, puts into sets or prints, and does nothing else."""
    lines = [small for line in tree.within(loop.body, cst.SimpleStatementLine) for small in line.body]
    return bool(lines) and all(_sums(tree, each) for each in lines)


def _sums(tree: Tree, statement: cst.BaseSmallStatement) -> bool:
    if isinstance(statement, cst.Expr) and isinstance(call := statement.value, cst.Call):
        return tree.qualified(call.func) == "print" or (method(call) == "add" and tree.maker(call.func.value) == "set")  # type: ignore[attr-defined]
    if not isinstance(statement, cst.AugAssign) or not isinstance(statement.target, cst.Name):
        return False
    return isinstance(statement.operator, (cst.AddAssign, cst.SubtractAssign)) and _is_number(tree, statement.value)


def _is_number(tree: Tree, node: cst.BaseExpression) -> bool:
    """True for a number that is written out, counted, or made of such."""
    if isinstance(node, cst.BinaryOperation):
        return _is_number(tree, node.left) and _is_number(tree, node.right)
    called = tree.qualified(node.func) if isinstance(node, cst.Call) else ""
    return isinstance(node, (cst.Integer, cst.Float)) or called in _NUMBERS or method(node) == "count"
