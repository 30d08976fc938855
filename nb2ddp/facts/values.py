"""Values of expressions, resolved through names, entries, attributes, parameters, texts, paths and arithmetic."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import libcst as cst

from nb2ddp.syntax.arguments import entry
from nb2ddp.syntax.tree import ADDING, Tree, argument, keyword, method, own_class

Number = int | float
#: The placeholder for an unknown part of a text.
ANY = "*"
_ARITHMETIC: dict[type[cst.BaseBinaryOp], Callable[[Number, Number], Number]] = {
    cst.Add: operator.add,
    cst.Subtract: operator.sub,
    cst.Multiply: operator.mul,
    cst.Divide: operator.truediv,
    cst.FloorDivide: operator.floordiv,
}
_FUNCTIONS: dict[str, Callable[..., Number]] = {"int": int, "max": max, "min": min}
#: Functions that make rows from a list or from a dictionary of columns.
_TABLES = frozenset(
    {"datasets.Dataset.from_list", "datasets.Dataset.from_dict", "datasets.Dataset.from_pandas", "pandas.DataFrame"}
)
#: Methods of a data set that keep the number of its rows; `map` may drop rows if it also drops columns.
_KEEPING = frozenset({"map", "shuffle", "select_columns", "rename_column", "rename_columns", "cast_column"})
#: The maximum number of expressions that lead to rows.
_DEPTH = 12
_PATHS = frozenset({"os.path.join", "pathlib.Path", "str"})
#: A name in braces or after `$`, which IPython fills in.
_FILLED = re.compile(r"(?<!\$)\{([^{}]*)\}|\$([A-Za-z_]\w*)")


@dataclass(frozen=True)
class Value:
    """The value of an expression.

    Attributes:
        text: the value as text, with `*` for unknown parts.
        number: the value as a number; None if it is unknown or depends on a test.
    """

    text: str = ANY
    number: Number | None = None


def evaluate(tree: Tree, node: cst.BaseExpression, above: tuple[cst.CSTNode, ...] = ()) -> Value:
    """Return the value of an expression; `above` are the expressions that contain it."""
    chain = tree.followed(node, lambda link: _resolve_step(tree, link))
    value = chain[-1]
    if value in above:  # a name whose value depends on itself
        return Value()

    def part(node: cst.BaseExpression) -> Value:
        return evaluate(tree, node, (*above, value))

    found, constant = Value(), tree.literal(value)
    if isinstance(constant, str):
        return Value(constant)
    match value:
        case cst.FormattedString():
            found = Value("".join(_piece(tree, each, part) for each in value.parts))
        case cst.ConcatenatedString():
            found = Value(part(value.left).text + part(value.right).text)
        case cst.BinaryOperation():
            both = [part(value.left), part(value.right)]
            between = {cst.Add: "", cst.Divide: "/"}.get(type(value.operator))
            text = ANY if between is None else between.join(each.text for each in both)
            found = Value(text, _worked_out(_ARITHMETIC.get(type(value.operator)), both))
        case cst.Call() if (name := tree.qualified(value.func)) in _PATHS.union(_FUNCTIONS):
            given = [part(each.value) for each in value.args]
            text = "/".join(each.text for each in given) if name in _PATHS else ANY
            found = Value(text, _worked_out(_FUNCTIONS.get(name), given))
        case _:
            if isinstance(constant, (int, float)) and not isinstance(constant, bool):
                found = Value(number=constant)
            elif isinstance(param := tree.definition(value), cst.Param):
                passed_on = {part(each) for each in passed(tree, param)}
                found = passed_on.pop() if len(passed_on) == 1 else found
    return Value(found.text) if any(_is_chosen(tree, link) for link in chain) else found


def _piece(tree: Tree, piece: cst.BaseFormattedStringContent, part: Callable[[cst.BaseExpression], Value]) -> str:
    """Return the text that a piece of an f-string adds to it."""
    if isinstance(piece, cst.FormattedStringText):
        return tree.content(piece)
    expression = cst.ensure_type(piece, cst.FormattedStringExpression)
    return ANY if expression.conversion or expression.format_spec else part(expression.expression).text


def _worked_out(function: Callable[..., Number] | None, values: Sequence[Value]) -> Number | None:
    """Return the result of arithmetic; None if it fails or a number is unknown."""
    numbers = [each.number for each in values]
    try:
        return None if function is None or None in numbers else function(*numbers)
    except (ArithmeticError, TypeError, ValueError):
        return None


def number(tree: Tree, node: cst.BaseExpression) -> Number | None:
    """Return the value of an expression as a number; None if it is unknown or depends on a test."""
    return evaluate(tree, node).number


def rows_written(tree: Tree, node: cst.BaseExpression, depth: int = _DEPTH) -> int:
    """Return the number of rows of a list or data set that the code writes out; 0 if unknown."""
    source: cst.BaseExpression | None = None
    times: Number | None = 1
    match node:
        case cst.List():
            return 0 if any(isinstance(row, cst.StarredElement) for row in node.elements) else len(node.elements)
        case cst.Name() if (binding := tree.binding(node)) is not None and tree.is_top_level(binding.node):
            grows = any(method(tree.extended(use, cst.Attribute, cst.Call)) in ADDING for use in tree.loads(node.value))
            source = None if grows else binding.value
        case cst.Dict(elements=[first, *_]):
            source = first.value
        case cst.BinaryOperation(operator=cst.Multiply()):
            source, times = node.left, number(tree, node.right)
        case cst.Call(args=[first, *_]) if tree.qualified(node.func) in _TABLES:
            source = first.value
        case cst.Call(func=cst.Attribute(value=owner)) if method(node) in _KEEPING:
            source = owner if keyword(node, "remove_columns") is None else None
    if source is None or not depth or not isinstance(times, int):
        return 0
    return times * rows_written(tree, source, depth - 1)


def texts_of(tree: Tree, node: cst.BaseExpression) -> list[str]:
    """Return the texts that an expression may have as its value, with `*` for unknown parts."""
    return list(dict.fromkeys(evaluate(tree, each).text for each in values(tree, node))) or [ANY]


def values(tree: Tree, node: cst.BaseExpression) -> list[cst.BaseExpression]:
    """Return the expressions to which an expression resolves: for a parameter, those that calls pass to it."""
    value = resolved(tree, node)
    param = tree.definition(value)
    return [resolved(tree, each) for each in passed(tree, param)] if isinstance(param, cst.Param) else [value]


def resolved(tree: Tree, node: cst.BaseExpression, pending: tuple[cst.CSTNode, ...] = ()) -> cst.BaseExpression:
    """Return the expression to which names, entries and attributes resolve: `Path("out")` for `paths["out"]`.

    `pending` holds the expressions whose resolution needs this one: `f = f.name` resolves to itself.
    """
    if node in pending:
        return node
    return tree.followed(node, lambda link: _resolve_step(tree, link, (*pending, node)))[-1]


def filled(tree: Tree, text: str) -> str:
    """Return a text with `{name}` and `$name` filled in if the code binds the name once, to a text or a path."""

    def fill(name: re.Match[str]) -> str:
        bound = tree.bindings(name[1] or name[2])
        texts = texts_of(tree, bound[0].value) if len(bound) == 1 and bound[0].value is not None else [ANY]
        return texts[0] if len(texts) == 1 and ANY not in texts[0] else name[0]

    return _FILLED.sub(fill, text)


def _resolve_step(
    tree: Tree, node: cst.BaseExpression, pending: tuple[cst.CSTNode, ...] = ()
) -> cst.BaseExpression | None:
    """Return the value of a name's binding, of a dictionary's key or of an object's attribute; None if unknown."""
    match node:
        case cst.Name():
            return binding.value if (binding := tree.binding(node)) is not None else None
        case cst.Subscript(slice=[cst.SubscriptElement(slice=cst.Index(value=key))]):
            return _entry(tree, node.value, key, pending)
        case cst.Call(func=cst.Attribute(value=owner, attr=cst.Name(value="get")), args=[first, *_]):
            return _entry(tree, owner, first.value, pending)
        case cst.Attribute():
            return attribute(tree, node) or _field(tree, node, pending)
    return None


def _is_chosen(tree: Tree, node: cst.BaseExpression) -> bool:
    """Return whether a test decides the value of a name."""
    binding = tree.binding(node)
    if binding is None or binding.value is None or tree.is_top_level(binding.node):
        return False
    name = cst.ensure_type(node, cst.Name).value
    return sum(each.offset < tree.start(node) for each in tree.bindings(name, binding.node)) > 1


def _entry(
    tree: Tree, owner: cst.BaseExpression, key: cst.BaseExpression, pending: tuple[cst.CSTNode, ...]
) -> cst.BaseExpression | None:
    """Return the value of a dictionary's key."""
    name, whole = tree.literal(key), owner if isinstance(owner, cst.Name) else resolved(tree, owner, pending)
    found = entry(tree, whole, name) if isinstance(name, str) else None
    return None if found is None else found.value


def attribute(tree: Tree, node: cst.Attribute) -> cst.BaseExpression | None:
    """Return the value of an attribute of a user-defined class that exactly one assignment sets: `self.path`."""
    owner = own_class(tree, node)
    targets = [] if owner is None else tree.setting(node.attr.value)
    of_it = [each for each in targets if own_class(tree, each.targets[0].target) in (owner, None)]
    return of_it[0].value if len(of_it) == 1 else None


def _field(tree: Tree, node: cst.Attribute, pending: tuple[cst.CSTNode, ...]) -> cst.BaseExpression | None:
    """Return the value that an attribute gets when its object or class is made, if no other line sets it."""
    name, made = node.attr.value, resolved(tree, node.value, pending)
    if any(isinstance(tree.parents[each], (cst.AssignTarget, cst.AugAssign)) for each in tree.attributes(name)):
        return None
    if isinstance(made, cst.Call):
        if (given := keyword(made, name)) is not None:
            return given.value
        if any(each.star or each.keyword is None for each in made.args):
            return None
        made = made.func
    owner = tree.definition(made)
    bound = tree.bindings(name, owner.body) if isinstance(owner, cst.ClassDef) else []
    value = bound[0].value if len(bound) == 1 else None
    default = keyword(value, "default") if isinstance(value, cst.Call) else None
    return value if default is None else default.value


def _called(tree: Tree, call: cst.Call) -> cst.FunctionDef | None:
    """Return the user-defined function that a call runs: a function, a method, or the `__init__` of a class."""
    definition = tree.definition(call.func)
    if isinstance(definition, cst.FunctionDef):
        return definition
    owner, name = own_class(tree, call.func), method(call)
    if isinstance(definition, cst.ClassDef):
        owner, name = definition, "__init__"
    functions = [] if owner is None else tree.within(owner, cst.FunctionDef)
    return next((each for each in functions if tree.scope(each) is owner and each.name.value == name), None)


def passed(tree: Tree, param: cst.Param) -> list[cst.BaseExpression]:
    """Return the expressions that calls pass to a parameter, or its default; none for a method with unknown calls."""
    function, name = tree.function(param), param.name.value
    if function is None:
        return []
    calls = [tree.call_of(use) for use in tree.named(function)]
    own = [call for call in calls if call is not None and _called(tree, call) is function]
    names = [each.name.value for each in function.params.params]
    if isinstance(tree.scope(function), cst.ClassDef):
        if not all(call is not None and _called(tree, call) is not None for call in calls):
            return []
        is_static = any(tree.text(each.decorator) == "staticmethod" for each in function.decorators)
        names = names if is_static else names[1:]  # a call passes the object first, without an argument
    arguments = [argument(call, name, names.index(name) if name in names else None) for call in own]
    given = [param.default if each is None else each.value for each in arguments]
    return [each for each in given if each is not None]
