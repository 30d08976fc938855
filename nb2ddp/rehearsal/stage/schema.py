"""What is known of a script's data: what its text says of columns, and what its preparation was seen to lack."""

from __future__ import annotations

import ast
import json
import os
from typing import TYPE_CHECKING, Any

from .shapes import AUDIO, EACH, IMAGE, INSIDE, SAID, Maker, by_name, keyed, list_of, one_of, plain, turns_with_image

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .shapes import Path, Shape

MOST_ROWS = 20_000  # of a made source
_HEAVY_ROWS = 64  # different ones, of a data set with pictures or sounds
_OF_ROWS = frozenset("map filter apply from_generator".split())  #: what calls a function with each row
_ALL = "<batch>"  #: behind a column, all of its values in a batch
_NUMBERS = (ast.Lt, ast.LtE, ast.Gt, ast.GtE)


class Schema:
    """What made rows hold, and what else is made.

    Args:
        file: where it is kept between processes, as JSON.
        columns: the columns that the script names; they hold what their names and its comparisons say.
        text: the script.
        rows: how many a made data set has at least.
        splits: its splits, where the script does not say which it wants.
    """

    def __init__(self, file: str, columns: list[str], text: str, rows: int, splits: list[str]) -> None:
        self.file, self.splits = file, splits
        self.compared = dict(_compared(text))
        self.labels = _labels(text)
        if "KTOTrainer" in text:  # TRL 0.22 asks whether a label is True, not whether it is 1
            self.compared["label"] = one_of([True, False])
        read = {name: shape for name, shape in read_of_rows(ast.parse(text)).items() if "keys" in str(shape)}
        self.columns: dict[str, Shape] = {name: self._guess(name) for name in columns or ["text"]}
        self.columns |= {name: shape for name, shape in read.items() if self.columns.get(name) == plain()}
        if {"messages", "images"} <= self.columns.keys():
            self.columns["messages"] = turns_with_image()
        self.files: dict[str, list[str]] = {}  #: made, by path -> the keys below which its rows are
        self.variables: dict[str, str] = {}  #: of the environment
        self.rows, self.width = rows, 0  #: `width`: how many columns a table has, where the script counts them
        self.is_whole = False  #: a data set is not divided into splits where the script asks for none
        self.keeps_all = False  #: filters that no made row passes let all pass
        self.passed: list[int] = []  #: lines of statements that are passed over
        self.learnt: list[str] = []  #: in words
        self.maker = Maker()
        self.load()

    def load(self) -> None:
        """Take what was kept."""
        if os.path.exists(self.file):
            with open(self.file, encoding="utf-8") as kept:
                learnt = json.load(kept)
            self.variables.update(learnt.pop("variables"))  # which others hold, too
            vars(self).update(learnt)

    def save(self) -> None:
        """Keep it."""
        own = ("maker", "file", "compared", "labels")
        kept = {name: value for name, value in vars(self).items() if name not in own}
        with open(self.file, "w", encoding="utf-8") as file:
            json.dump(kept, file)

    def _guess(self, column: str) -> Shape:
        return self.compared.get(column) or by_name(column, self.labels)

    def shape(self, path: Path) -> Shape | None:
        """The shape of a part of a row."""
        shape = self.columns.get(path[0]) if path else None
        for step in path[1:]:
            shape = shape and (shape.get("of") if step in (EACH, INSIDE) else shape.get("keys", {}).get(step))
        return shape

    def put(self, path: Path, shape: Shape, why: str) -> bool:
        """Let a part of a row have this shape; return whether that is new. `why` is told."""
        if not path or self.shape(path) == shape:
            return False
        if len(path) == 1:
            self.columns[path[0]] = shape
        elif (parent := self.shape(path[:-1])) is None:
            return False
        elif path[-1] in (EACH, INSIDE):
            parent["of"] = shape
        else:
            parent.setdefault("keys", {})[path[-1]] = shape
        self.learnt.append(f"{'.'.join(path)} {why}")
        return True

    def add(self, path: Path, key: str) -> bool:
        """Let a part of a row be a dictionary with this key, too; a row itself where there is no path."""
        if not path:
            return key not in self.columns and self.put((key,), self._guess(key), "is read")
        shape = self.shape(path)
        if shape is None:
            return False
        if shape["kind"] == "json":
            return self.add((*path, INSIDE), key)
        known = dict(shape.get("keys", {})) if shape["kind"] == "dict" else {}
        if key in known:
            return False
        return self.put(path, keyed(**known, **{key: by_name(key)}), f"has the key {key}")

    def made_rows(self, source: str, count: int = 0) -> list[dict[str, Any]]:
        """Rows of a source, the same in every process; pictures and sounds are those of the first rows again."""
        count = count or self.rows
        made = {
            name: self.maker.column(name, shape, source, min(count, _HEAVY_ROWS) if _is_heavy(shape) else count)
            for name, shape in self.columns.items()
        }
        return [{name: values[number % len(values)] for name, values in made.items()} for number in range(count)]


def _is_heavy(shape: Shape) -> bool:
    return IMAGE in str(shape) or AUDIO in str(shape)


def _labels(text: str) -> int:
    """How many labels the script gives to a classifier, where it says so; else 2."""
    tree = ast.parse(text)
    held = {ast.unparse(each.targets[0]): each.value for each in ast.walk(tree) if isinstance(each, ast.Assign)}
    for given in (each.value for each in ast.walk(tree) if isinstance(each, ast.keyword) and each.arg == "num_labels"):
        value: Any = held.get(ast.unparse(given), given)
        if isinstance(value, ast.Call) and ast.unparse(value.func) == "len":
            listed: Any = held.get(ast.unparse(value.args[0]))
            value = ast.Constant(len(listed.keys if isinstance(listed, ast.Dict) else getattr(listed, "elts", ())))
        if isinstance(value, ast.Constant) and type(value.value) is int and value.value > 2:
            return value.value
    return 2


def _column(node: ast.AST) -> str | None:
    """The column that an expression reads: `row["x"]`, `row.get("x")`, also stripped or in other letters."""
    if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant) and isinstance(node.slice.value, str):
        return node.slice.value
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        if node.func.attr == "get" and node.args and isinstance(node.args[0], ast.Constant):
            return str(node.args[0].value)
        if node.func.attr in ("strip", "lower", "upper", "astype"):
            return _column(node.func.value)
    return None


def _compared(text: str) -> Iterator[tuple[str, Shape]]:
    """Columns that the script compares with constants, or looks up in a table of its own."""
    tree = ast.parse(text)
    tables = {
        target.id: node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Dict)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    found: dict[str, list[Any]] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare) and (name := _column(node.left)):
            found.setdefault(name, []).extend(_values(node.ops[0], node.comparators[0]))
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "map":
            name = _column(node.func.value)
            table = node.args[0] if node.args else None
            table = tables.get(table.id) if isinstance(table, ast.Name) else table
            if name and isinstance(table, ast.Dict):
                found.setdefault(name, []).extend(key.value for key in table.keys if isinstance(key, ast.Constant))
    for name, values in found.items():
        if values := [each for each in dict.fromkeys(values) if each is not None and each != ""]:
            yield name, one_of(values if len({type(each) for each in values}) == 1 else [str(each) for each in values])


def _values(operator: ast.cmpop, other: ast.expr) -> list[Any]:
    """Values that pass a comparison, and some that do not where it asks for more or less."""
    if isinstance(operator, _NUMBERS) and isinstance(other, ast.Constant) and isinstance(other.value, (int, float)):
        return [other.value - 1, other.value, other.value + 1]
    if isinstance(operator, (ast.Eq, ast.In)):
        given = other.elts if isinstance(other, (ast.List, ast.Tuple, ast.Set)) else [other]
        named = [each.value for each in given if isinstance(each, ast.Constant)]
        return [*named, 0, 1] if named and type(named[0]) is int else named
    return []


def read_of_rows(tree: ast.Module) -> dict[str, Shape]:
    """The columns that functions of rows read, also with `.get`, which misses none, and what is read of these."""
    functions = {node.name: node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
    found: dict[str, Any] = {}
    for call in (node for node in ast.walk(tree) if isinstance(node, ast.Call)):
        if isinstance(call.func, ast.Attribute) and call.func.attr in _OF_ROWS:
            for given in call.args:
                function = functions.get(given.id) if isinstance(given, ast.Name) else given
                if isinstance(function, (ast.FunctionDef, ast.Lambda)) and function.args.args:
                    is_batch = any(each.arg == "batched" for each in call.keywords)
                    _read_in(function, {function.args.args[0].arg: ()}, found, is_batch)
    return {name: _shaped(name, inner) for name, inner in found.items()}


def _read_in(function: ast.AST, paths: dict[str, Path], found: dict[str, Any], is_batch: bool) -> None:
    """Add the paths that a function reads, given those of its names: a tree of keys."""

    def path(node: ast.AST) -> Path | None:
        if isinstance(node, ast.Name):
            return paths.get(node.id)
        if isinstance(node, ast.BoolOp):
            return path(node.values[0])
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.args
            and node.func.attr == "get"
        ):
            node = ast.Subscript(node.func.value, node.args[0])
        if not isinstance(node, ast.Subscript) or (base := path(node.value)) is None:
            return None
        if isinstance(node.slice, ast.Constant) and isinstance(node.slice.value, str):
            return (*base, node.slice.value, *([_ALL] if is_batch and not base else []))
        return base if isinstance(node.slice, ast.Slice) else _each(base)

    def bind(target: ast.AST, over: ast.expr) -> None:
        called = ast.unparse(over.func) if isinstance(over, ast.Call) else ""
        given = over.args if isinstance(over, ast.Call) else []
        if isinstance(target, ast.Tuple) and called == "enumerate":
            bind(target.elts[-1], given[0])
        elif isinstance(target, ast.Tuple) and called == "zip":
            for one, values in zip(target.elts, given, strict=False):
                bind(one, values)
        elif isinstance(target, ast.Name) and (at := _each(path(over) or ())):
            paths[target.id] = at

    for node in _in_order(function):
        if isinstance(node, (ast.For, ast.comprehension)):
            bind(node.target, node.iter)
        elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            paths |= {node.targets[0].id: given} if (given := path(node.value)) is not None else {}
        inner = found
        for step in (step for step in path(node) or () if step != _ALL):
            inner = inner.setdefault(step, {})


def _each(path: Path) -> Path | None:
    """The path of an element of what a path leads to."""
    return path[:-1] if path[-1:] == (_ALL,) else (*path, EACH) if path else None


def _in_order(node: ast.AST) -> Iterator[ast.AST]:
    """The nodes below one, as they are written; the loops of a comprehension before what it makes."""
    below = list(ast.iter_child_nodes(node))
    for each in sorted(below, key=lambda child: not isinstance(child, ast.comprehension)):
        yield each
        yield from _in_order(each)


def _shaped(name: str, inner: dict[str, Any]) -> Shape:
    if EACH in inner:
        return list_of(_shaped(name, inner[EACH]))
    inner = inner | {SAID[who]: inner.get(SAID[who], {}) for who in inner.keys() & SAID.keys()}
    return keyed(**{key: _shaped(key, below) for key, below in inner.items()}) if inner else by_name(name)
