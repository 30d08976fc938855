"""Find in the text of a script the columns of its data, and what is in them.

A reader resolves an expression to a part of a row, through subscripts, `.get`, loops and names.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from typing import Any

from .nodes import calls, constant, every, used
from .shapes import CONTENT_KEYS, EACH, Path, Shape, by_name, keyed, list_of, one_of
from .toml import tables

_OF_ROWS = frozenset("map filter apply from_generator".split())  #: methods that call a function with each row
_ALL = "<batch>"  #: after a column: all of its values in a batch
_TABLES = tables(__file__)
_PAIR = ("anchor", "positive")  #: any two texts are one


class Reader:
    """Resolves an expression to a part of a row. Here every name is a row, and an element has the path of its list."""

    def name(self, name: str) -> Path | None:
        """Return the path of a variable."""
        return ()

    def key(self, base: ast.expr, key: str) -> Path | None:
        """Return the path of the value of an expression under a key."""
        found = self.path(base)
        return None if found is None else (*found, key)

    def element(self, base: ast.expr) -> Path | None:
        """Return the path of an element of an expression."""
        return self.path(base)

    def path(self, node: ast.AST) -> Path | None:
        """Return the path of an expression; None if it is not a part of a row."""
        match node:
            case ast.Name(id=name):
                return self.name(name)
            case ast.BoolOp(values=[first, *_]):
                return self.path(first)
            case ast.Subscript(value=base, slice=ast.Constant(value=str(key))):
                return self.key(base, key)
            case ast.Call(func=ast.Attribute(value=base, attr="get"), args=[ast.Constant(value=str(key)), *_]):
                return self.key(base, key)
            case ast.Subscript(value=base, slice=ast.Slice()):
                return self.path(base)
            case ast.Subscript(value=base):
                return self.element(base)
        return None


def bound(node: ast.AST) -> Iterator[tuple[str, ast.expr, bool]]:
    """Yield the names that a loop or an assignment binds, each with an expression, and whether to an element of it."""
    match node:
        case ast.For(target=target, iter=over) | ast.comprehension(target=target, iter=over):
            yield from ((name, values, True) for name, values in _loops(target, over))
        case ast.Assign(targets=targets, value=value):
            yield from ((target.id, value, False) for target in targets if isinstance(target, ast.Name))


def _loops(target: ast.AST, over: ast.expr) -> Iterator[tuple[str, ast.expr]]:
    """Yield the names that a loop binds, each with its iterable; also through `enumerate` and `zip`."""
    match target, over:
        case ast.Tuple(elts=[_, inner]), ast.Call(func=ast.Name(id="enumerate"), args=[given, *_]):
            yield from _loops(inner, given)
        case ast.Tuple(elts=targets), ast.Call(func=ast.Name(id="zip"), args=given):
            for one, values in zip(targets, given, strict=False):
                yield from _loops(one, values)
        case ast.Name(id=name), _:
            yield name, over


class _RowReader(Reader):
    """Reads a function that gets a row, or a batch of rows."""

    def __init__(self, row: str, is_batch: bool) -> None:
        self.names: dict[str, Path] = {row: ()}
        self.is_batch = is_batch

    def name(self, name: str) -> Path | None:
        return self.names.get(name)

    def key(self, base: ast.expr, key: str) -> Path | None:
        found = super().key(base, key)
        return (key, _ALL) if found == (key,) and self.is_batch else found

    def element(self, base: ast.expr) -> Path | None:
        found = self.path(base)
        if not found:
            return None
        return found[:-1] if found[-1] == _ALL else (*found, EACH)

    def read(self, function: ast.AST, found: dict[str, Any]) -> None:
        """Add the paths that a function reads to a tree of keys."""
        for node in _in_order(function):
            for name, value, is_element in bound(node):
                if (at := self.element(value) if is_element else self.path(value)) is not None:
                    self.names[name] = at
            inner = found
            for step in self.path(node) or ():
                inner = inner if step == _ALL else inner.setdefault(step, {})


def _in_order(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the nodes below a node in source order; the loops of a comprehension come before its element."""
    below = list(ast.iter_child_nodes(node))
    for each in sorted(below, key=lambda child: not isinstance(child, ast.comprehension)):
        yield each
        yield from _in_order(each)


def read_of_rows(tree: ast.Module) -> dict[str, Shape]:
    """Return the columns, and their parts, that functions of rows read, also with `.get`, which raises nothing."""
    functions = {node.name: node for node in every(tree, ast.FunctionDef)}
    found: dict[str, Any] = {}
    for method, call in calls(tree):
        if method in _OF_ROWS and isinstance(call.func, ast.Attribute):
            for given in call.args:
                function = functions.get(given.id) if isinstance(given, ast.Name) else given
                if isinstance(function, (ast.FunctionDef, ast.Lambda)) and function.args.args:
                    is_batch = any(each.arg == "batched" for each in call.keywords)
                    _RowReader(function.args.args[0].arg, is_batch).read(function, found)
    return {name: _shaped(name, inner) for name, inner in found.items()}


def _shaped(name: str, inner: dict[str, Any]) -> Shape:
    if EACH in inner:
        return list_of(_shaped(name, inner[EACH]))
    inner = inner | {CONTENT_KEYS[who]: inner.get(CONTENT_KEYS[who], {}) for who in inner.keys() & CONTENT_KEYS.keys()}
    return keyed(**{key: _shaped(key, below) for key, below in inner.items()}) if inner else by_name(name)


def compared(tree: ast.Module) -> Iterator[tuple[str, Shape]]:
    """Yield columns that the script compares with constants, or looks up in one of its dictionaries."""
    bound = [node for node in every(tree, ast.Assign) if isinstance(node.value, ast.Dict)]
    tables = {ast.unparse(node.targets[0]): node.value for node in bound}
    found: dict[str, list[Any]] = {}
    for node in ast.walk(tree):
        match node:
            case ast.Compare(left=left, ops=[operator, *_], comparators=[other, *_]):
                found.setdefault(_column(left), []).extend(_values(operator, other))
            case ast.Call(func=ast.Attribute(value=column, attr="map"), args=[given, *_]):
                table = tables.get(ast.unparse(given), given)
                keys = table.keys if isinstance(table, ast.Dict) else []
                found.setdefault(_column(column), []).extend(key.value for key in keys if isinstance(key, ast.Constant))
    found.pop("", None)
    for name, values in found.items():
        if values := [each for each in dict.fromkeys(values) if each is not None and each != ""]:
            yield name, one_of(values if len({type(each) for each in values}) == 1 else [str(each) for each in values])


def _column(node: ast.expr) -> str:
    """Return the column, or the key of one, that an expression reads, also stripped or in another case; else ""."""
    while isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr != "get":
        if node.func.attr not in ("strip", "lower", "upper", "astype"):
            return ""
        node = node.func.value
    return (Reader().path(node) or ("",))[-1] if isinstance(node, (ast.Subscript, ast.Call)) else ""


def _values(operator: ast.cmpop, other: ast.expr) -> list[Any]:
    """Return values that pass a comparison; if it asks for more or less, also some that do not."""
    match operator, other:
        case ((ast.Lt() | ast.LtE() | ast.Gt() | ast.GtE()), ast.Constant(value=int(number) | float(number))):
            return [number - 1, number, number + 1]
    if isinstance(operator, (ast.Eq, ast.In)):
        given = other.elts if isinstance(other, (ast.List, ast.Tuple, ast.Set)) else [other]
        named = [each.value for each in given if isinstance(each, ast.Constant)]
        return [*named, 0, 1] if named and type(named[0]) is int else named
    return []


def labels(tree: ast.Module) -> int:
    """Return the number of labels that the script gives to a classifier, or 2."""
    held = {ast.unparse(each.targets[0]): each.value for each in every(tree, ast.Assign)}
    for given in (each.value for each in every(tree, ast.keyword) if each.arg == "num_labels"):
        count = 0
        match held.get(ast.unparse(given), given):
            case ast.Constant(value=int(value)):
                count = value
            case ast.Call(func=ast.Name(id="len"), args=[listed]):
                match held.get(ast.unparse(listed)):
                    case ast.Dict(keys=items) | ast.List(elts=items) | ast.Tuple(elts=items) | ast.Set(elts=items):
                        count = len(items)
        if count > 2:
            return count
    return 2


def columns(tree: ast.Module) -> list[str]:
    """Return the columns that a script's data must have: those that it names, and those that its trainers read."""
    trainers = used(tree)
    read = [column for trainer, own in _TABLES["reads"].items() if trainer in trainers for column in own]
    named = list(dict.fromkeys([*_named(tree, makes_labels="SFTTrainer" in trainers), *read]))
    return named or [*_PAIR] * ("SentenceTransformerTrainer" in trainers)


def _named(tree: ast.Module, *, makes_labels: bool) -> Iterator[str]:
    """Yield names that may be columns: subscripts of rows, and arguments of methods of data and trainers.

    A column that the script makes itself is not a column of its source.
    """
    made = {*_made(tree)}
    no_column = {*_TABLES["no_columns"]}
    if makes_labels:
        no_column.add("labels")
    for node in ast.walk(tree):
        if isinstance(node, ast.Subscript) and (name := constant(node.slice)) and isinstance(node.ctx, ast.Load):
            container = ast.unparse(node.value)
            if name not in made | no_column and "environ" not in container and not container.endswith(".metrics"):
                yield name
        elif isinstance(node, ast.keyword) and node.arg in _TABLES["fields"] and (name := constant(node.value)):
            yield name
        elif isinstance(node, ast.Call) and node.args and ast.unparse(node.func).split(".")[-1] in _TABLES["methods"]:
            given = node.args[0]
            of_dict = given.keys if isinstance(given, ast.Dict) else [given]  # `rename_columns({old: new})`
            listed = given.elts if isinstance(given, (ast.List, ast.Tuple)) else of_dict
            yield from (name for each in listed if (name := constant(each)) and name not in made | no_column)


def _made(tree: ast.AST) -> Iterator[str]:
    """Yield the keys that statements write into rows, or functions return in dictionaries, without reading them."""
    for node in ast.walk(tree):
        made: Iterable[ast.expr | None] = ()
        match node:
            case ast.Assign(targets=targets):
                made = [each.slice for each in targets if isinstance(each, ast.Subscript)]
            case ast.Lambda(body=ast.Dict(keys=keys)):
                made = keys
            case ast.FunctionDef():
                given = (each.value for each in every(node, ast.Return))
                made = [key for value in given if isinstance(value, ast.Dict) for key in value.keys]
        if made:
            read = {constant(each.slice) for each in every(node, ast.Subscript) if isinstance(each.ctx, ast.Load)}
            yield from (name for key in made if (name := constant(key)) and name not in read)
