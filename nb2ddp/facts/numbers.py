"""The numbers that expressions stand for, as far as the code tells: through names, entries, attributes, arithmetic."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Final

import libcst as cst

from nb2ddp.facts.texts import held_by
from nb2ddp.facts.texts import passed as given_to
from nb2ddp.syntax.arguments import entry
from nb2ddp.syntax.tree import ADDING, Tree, keyword, method

Number = int | float
_OPERATORS: Final[dict[type[cst.BaseBinaryOp], Callable[[Number, Number], Number]]] = {
    cst.Add: operator.add,
    cst.Subtract: operator.sub,
    cst.Multiply: operator.mul,
    cst.Divide: operator.truediv,
    cst.FloorDivide: operator.floordiv,
}
_FUNCTIONS: Final[dict[str, Callable[..., Number]]] = {"int": int, "max": max, "min": min}
#: What makes rows of a list or of a dictionary of columns.
_TABLES = frozenset(
    {"datasets.Dataset.from_list", "datasets.Dataset.from_dict", "datasets.Dataset.from_pandas", "pandas.DataFrame"}
)
#: Methods of a data set that keep the number of its rows; `map` may drop rows where it also drops columns.
_KEEPING = frozenset({"map", "shuffle", "select_columns", "rename_column", "rename_columns", "cast_column"})
#: How many names, entries and operations lead to a number, at most.
_DEPTH = 12


def number(tree: Tree, node: cst.BaseExpression, depth: int = _DEPTH) -> Number | None:
    """The number that an expression stands for; None where nothing tells, or where it depends on a test."""
    value = _held(tree, node, depth)
    if value is None or not depth:
        return None
    if isinstance(value, cst.BinaryOperation) and type(value.operator) in _OPERATORS:
        both = [number(tree, side, depth - 1) for side in (value.left, value.right)]
        return _worked_out(_OPERATORS[type(value.operator)], both)
    if isinstance(value, cst.Call) and (function := _FUNCTIONS.get(tree.qualified(value.func))) is not None:
        return _worked_out(function, [number(tree, each.value, depth - 1) for each in value.args])
    parameter = tree.definition(value)
    if isinstance(parameter, cst.Param):
        numbers = {number(tree, each, depth - 1) for each in given_to(tree, parameter)}
        return numbers.pop() if len(numbers) == 1 else None
    constant = tree.literal(value)
    return constant if isinstance(constant, (int, float)) and not isinstance(constant, bool) else None


def rows_written(tree: Tree, node: cst.BaseExpression, depth: int = _DEPTH) -> int:
    """The number of rows of a list or a data set that the code writes out; 0 where nothing tells."""
    source: cst.BaseExpression | None = None
    times: Number | None = 1
    if isinstance(node, cst.Name) and (binding := tree.binding(node)) is not None and tree.is_certain(binding.node):
        grows = any(method(tree.extended(use, cst.Attribute, cst.Call)) in ADDING for use in tree.loads(node.value))
        source = None if grows else binding.value
    elif isinstance(node, cst.List):
        return 0 if any(isinstance(row, cst.StarredElement) for row in node.elements) else len(node.elements)
    elif isinstance(node, cst.Dict) and node.elements:
        source = node.elements[0].value
    elif isinstance(node, cst.BinaryOperation) and isinstance(node.operator, cst.Multiply):
        source, times = node.left, number(tree, node.right)
    elif isinstance(node, cst.Call) and tree.qualified(node.func) in _TABLES and node.args:
        source = node.args[0].value
    elif isinstance(node, cst.Call) and isinstance(node.func, cst.Attribute) and method(node) in _KEEPING:
        source = node.func.value if keyword(node, "remove_columns") is None else None
    if source is None or not depth or not isinstance(times, int):
        return 0
    return times * rows_written(tree, source, depth - 1)


def _worked_out(function: Callable[..., Number], numbers: list[Number | None]) -> Number | None:
    try:
        return function(*numbers) if numbers and None not in numbers else None
    except (ArithmeticError, TypeError, ValueError):
        return None


def _held(tree: Tree, node: cst.BaseExpression, depth: int) -> cst.BaseExpression | None:
    """What an expression stands for, through names, entries and attributes; None where a test decides."""
    while depth:
        depth -= 1
        found: cst.BaseExpression | None = None
        if isinstance(node, cst.Name) and (binding := tree.binding(node)) is not None and binding.value is not None:
            others = [each for each in tree.bindings(node.value, binding.node) if each.offset < tree.start(node)]
            if len(others) > 1 and not tree.is_certain(binding.node):
                return None
            found = binding.value
        elif isinstance(node, cst.Subscript) and isinstance(index := node.slice[0].slice, cst.Index):
            found = _entry(tree, node.value, tree.literal(index.value), depth)
        elif (
            method(node) == "get" and isinstance(node, cst.Call) and isinstance(node.func, cst.Attribute) and node.args
        ):
            found = _entry(tree, node.func.value, tree.literal(node.args[0].value), depth)
        elif isinstance(node, cst.Attribute):
            found = _field(tree, node, depth)
        if found is None:
            return node
        node = found
    return None


def _entry(tree: Tree, owner: cst.BaseExpression, key: object, depth: int) -> cst.BaseExpression | None:
    """The value of a dictionary's key."""
    whole = owner if isinstance(owner, cst.Name) else _held(tree, owner, depth)
    passed = entry(tree, whole, key) if whole is not None and isinstance(key, str) else None
    return None if passed is None else passed.value


def _field(tree: Tree, node: cst.Attribute, depth: int) -> cst.BaseExpression | None:
    """What an object or a class has as an attribute from where it is made, if no other line sets it."""
    if (kept := held_by(tree, node)) is not None:
        return kept
    name, made = node.attr.value, _held(tree, node.value, depth)
    is_set = any(isinstance(tree.parents[each], (cst.AssignTarget, cst.AugAssign)) for each in tree.attributes(name))
    if made is None or is_set:
        return None
    if isinstance(made, cst.Call):
        if (given := keyword(made, name)) is not None:
            return given.value
        if any(each.star or each.keyword is None for each in made.args):
            return None
        made = made.func
    owner = tree.definition(made)
    lines = tree.within(owner.body, cst.Assign) if isinstance(owner, cst.ClassDef) else []
    noted = tree.within(owner.body, cst.AnnAssign) if isinstance(owner, cst.ClassDef) else []
    values = [each.value for each in lines if tree.text(each.targets[0].target) == name and tree.scope(each) is owner]
    values += [
        each.value for each in noted if tree.text(each.target) == name and tree.scope(each) is owner and each.value
    ]
    value = values[0] if len(values) == 1 else None
    default = keyword(value, "default") if isinstance(value, cst.Call) else None
    return value if default is None else default.value
