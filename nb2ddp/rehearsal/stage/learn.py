"""Learn from the exception that ended a preparation what its made rows and files lacked.

The only source is the exception itself: where it was raised, the values there, and which of them were made. The table
`_REPAIRS` says what may be learnt from each exception.
"""

from __future__ import annotations

import ast
import copy
import os
import re
import sys
import types
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias

from .columns import Reader, bound, read_of_rows
from .nodes import constant, every, texts, used
from .schema import Schema
from .shapes import EACH, IMAGE, INSIDE, Path, Shape, by_name, keyed, list_of, one_of, plain, turns

_EMPTY = re.compile(
    r"num_samples=0|out of bounds for size 0|empty (sequence|iterable|range|dataset)|n_samples=0|is empty|No columns|"
    r"(?:list|tuple) index out of range|at least one|non-zero|Cannot choose from|division by zero|must be non-empty|"
    r"single positional indexer|has no rows|no examples|zero-size|should have at least|dictionary is empty|"
    r"multiple columns to the single column"
)
_QUOTED = re.compile(r"""(['"])(.+?)\1""")
_OF_NUMBER = r"(?s)(?:invalid literal for int\(\) with base \d+|could not convert string to \w+): ['\"]?(.*?)['\"]?$"
_MOST_ROWS = 20_000
_OF_FOLDERS = frozenset("listdir scandir walk iterdir glob rglob chdir load_from_disk".split())
_READ_BY = {"soundfile": "wav", "librosa": "wav", "PIL": "png", "cv2": "png"}  #: kinds of files, by package
_OF_PICTURES = frozenset("convert resize size mode width height save thumbnail crop tobytes getbands".split())


@dataclass
class Place(Reader):
    """Where the script was when an exception was raised.

    Attributes:
        node: the expression that raised it; None if it cannot be found.
        frame: the frame, with its names.
        tree: the script.
        schema: the contents of its rows.
        error: the exception, or one of its causes.
        parents: the parent of each node of the tree.
        found: the match of the pattern in the row of `_REPAIRS` that is tried.
    """

    node: ast.AST | None
    frame: types.FrameType
    tree: ast.Module
    schema: Schema
    error: BaseException
    parents: dict[ast.AST, ast.AST]
    found: Any = None

    def value(self, node: ast.AST) -> Any:
        """Return the value of an expression that calls nothing; None for any other."""
        if any(isinstance(each, (ast.Call, ast.Await, ast.Yield, ast.NamedExpr)) for each in ast.walk(node)):
            return None
        try:
            code = compile(ast.Expression(node), "<value>", "eval")  # type: ignore[arg-type]
            return eval(code, self.frame.f_globals, {**self.frame.f_globals, **self.frame.f_locals})
        except Exception:
            return None

    def path(self, node: ast.AST) -> Path | None:
        """Return the part of a made row that an expression is: by its value if that shows it, else by its source."""
        if found := self.schema.maker.path(self.value(node)) or super().path(node):
            return found
        match node:
            case ast.Attribute(attr=name) if name in self.schema.columns:
                return (name,)
            case ast.Call(func=ast.Attribute(attr="loads") | ast.Name(id="loads"), args=[given, *_]):
                found = self.path(given)
                return (*found, INSIDE) if found else None
            case ast.Call(func=ast.Attribute(value=value, attr=name)) if name != "get":
                return None if isinstance(value, ast.Constant) else self.path(value)
            case ast.Call(func=ast.Name(id="str" | "list" | "len" | "enumerate"), args=[given, *_]):
                return self.path(given)
        return None

    def name(self, name: str) -> Path | None:
        """Return the path of a variable, from the loop or assignment that binds it."""
        for node in ast.walk(self._function()):
            for each, value, is_element in bound(node):
                if each == name and is_element and (path := self._looped(value)):
                    return path
                if each == name and not is_element and not _reads(value, name):
                    return self.path(value)
        return None

    def key(self, base: ast.expr, key: str) -> Path | None:
        """Return the path of the value of an expression under a key."""
        path = self.path(base)
        if path and self.schema.shape((*path, key)) is not None:
            return (*path, key)
        return (key,) if key in self.schema.columns else None

    def element(self, base: ast.expr) -> Path | None:
        """Return the path of an element of an expression; for a batch, the path of the column."""
        path = self.path(base)
        is_divisible = path and (self._is_list(path) or isinstance(self.value(base), str))
        return (*path, EACH) if path and is_divisible else path

    def kind(self, path: Path | None) -> str:
        """Return the kind of shape of a part of a row; "" if it has none."""
        return str((self.schema.shape(path) or {}).get("kind", ""))

    def _looped(self, over: ast.expr) -> Path | None:
        path = self.path(over)
        is_batch = isinstance(self.value(over), list) and path is not None and not self._is_list(path)
        return path if path is None or is_batch else (*path, EACH)

    def _is_list(self, path: Path) -> bool:
        return self.kind(path) == "list"

    def _function(self) -> ast.AST:
        """Return the enclosing function of the expression, or the script."""
        node = self.node
        while node is not None and not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            node = self.parents.get(node)
        return node or self.tree


def _reads(node: ast.AST, name: str) -> bool:
    return any(each.id == name for each in every(node, ast.Name))


def place_of(error: BaseException, script: str, source: str, schema: Schema) -> Place | None:
    """Return where the script was; None if the exception did not pass through it."""
    entries = [each for each in entries_of(error) if each.tb_frame.f_code.co_filename == script]
    if not entries:
        return None
    tree = ast.parse(source)
    parents = {child: node for node in ast.walk(tree) for child in ast.iter_child_nodes(node)}
    return Place(_node(entries[-1], tree), entries[-1].tb_frame, tree, schema, error, parents)


def entries_of(error: BaseException) -> Iterator[types.TracebackType]:
    """Yield the entries of an exception's traceback, the outermost first."""
    entry = error.__traceback__
    while entry is not None:
        yield entry
        entry = entry.tb_next


def _node(entry: types.TracebackType, tree: ast.Module) -> ast.AST | None:
    """Return the innermost expression or statement at which a frame was."""
    line = entry.tb_lineno
    if sys.version_info >= (3, 11):
        positions = list(entry.tb_frame.f_code.co_positions())[entry.tb_lasti // 2]
        for node in ast.walk(tree):
            about = (getattr(node, name, None) for name in ("lineno", "end_lineno", "col_offset", "end_col_offset"))
            if tuple(about) == positions and not isinstance(node, ast.Expr):
                return node
    found = [node for node in ast.walk(tree) if getattr(node, "lineno", None) == line]
    return next((node for node in found if isinstance(node, (ast.Subscript, ast.Call))), found[0] if found else None)


def learn(place: Place, made: Callable[[str], bool], asked: list[str]) -> bool:
    """Add to the schema what it lacks according to an exception.

    Args:
        place: where it was raised.
        made: makes a missing file, and returns whether that is possible.
        asked: paths that the script looked for and did not find, without an exception.

    Returns:
        Whether anything was learnt.
    """
    error = place.error
    for each in chain(error):
        place.error = each
        if any(repair(place) for repair in _repairs(place)):
            return True
        if isinstance(each, (OSError, RuntimeError)) and sum(made(name) for name in _missing(place)):
            return True
    # Columns that the script does not find with `.get`, which raises nothing.
    unread = (each for each in read_of_rows(place.tree).items() if each[0] not in place.schema.columns)
    if sum(place.schema.put((name,), shape, "is asked for") for name, shape in unread):
        return True
    is_own = isinstance(place.node, (ast.Raise, ast.Assert)) or isinstance(error, SystemExit)
    if is_own or isinstance(error, StopIteration) or _EMPTY.search(_message(error)):
        named = sum(_name_files(name, "png", place) for name in asked)
        if named or sum(made(name) for name in asked if not is_model(name)):
            return True
        return not isinstance(error, SystemExit) and place.schema.set("keeps_all", True, "")
    return False


def _repairs(place: Place) -> Iterator[Repair]:
    """Yield the repairs of the table that fit the exception."""
    kinds = {each.__name__ for each in type(place.error).__mro__}
    for kind, message, repair in _REPAIRS:
        place.found = re.search(message, _message(place.error)) if kinds & set(kind.split()) else None
        if place.found:
            yield repair


def is_model(path: str) -> bool:
    """Return whether a path is one of a user's model, adapter or checkpoint: no file that is made here is one."""
    return re.search(r"(?i)lora|adapter|checkpoint|model|merged", os.path.basename(os.path.normpath(path))) is not None


def _message(error: BaseException) -> str:
    """Return the message of an exception; for a KeyError, without the quotes around it."""
    return str(error.args[0]) if isinstance(error, KeyError) and error.args else str(error)


def chain(error: BaseException | None) -> Iterator[BaseException]:
    """Yield an exception and its causes."""
    seen = error
    while seen is not None:
        yield seen
        seen = seen.__cause__ or seen.__context__


def _missing(place: Place) -> list[str]:
    """Return the missing files that an exception names; folders only if the script asks for what is in one."""
    error = place.error
    given = getattr(error, "filename", None) or (_message(error) if isinstance(error, FileNotFoundError) else None)
    named = [os.fsdecode(given)] if isinstance(given, (str, bytes)) else []
    named += [text for _, text in _QUOTED.findall(_message(error)) if os.sep in text or "." in text]
    node = place.node.iter if isinstance(place.node, ast.For) else place.node
    is_of_folder = used(node or place.tree) & _OF_FOLDERS
    return [name for name in dict.fromkeys(named) if is_of_folder or os.path.splitext(name)[1]]


def _name_file(place: Place) -> bool:
    """Handle a made text that is used as the name of a file, of the kind that the package that opens it reads."""
    name, kind = getattr(place.error, "filename", None), "txt"
    for entry in entries_of(place.error):
        file = entry.tb_frame.f_code.co_filename
        kind = next((kind for package, kind in _READ_BY.items() if f"{os.sep}{package}" in file), kind)
    return isinstance(name, str) and _name_files(name, kind, place)


def _name_files(name: str, kind: str, place: Place) -> bool:
    """Give the part of a row that a name came from a few names of files, of this kind if the name has none."""
    base = os.path.basename(name)
    path = place.schema.maker.path(base) or place.schema.maker.path(os.path.splitext(base)[0])
    if not path or place.kind(path) == "one of":
        return False
    has_kind = re.search(r"\.[a-z0-9]{2,5}$", base) is not None
    names = [f"made{number}" if has_kind else f"made{number}.{kind}" for number in range(4)]
    return place.schema.put(path, one_of(names), "is the name of a file")


def _add_split(place: Place) -> bool:
    """Add a split of a data set that the script names."""
    return place.schema.set("splits", list(dict.fromkeys([*place.schema.splits, place.found[1]])), "")


def _leave_whole(place: Place) -> bool:
    """Make data sets without splits, as the script expects."""
    return place.schema.set("is_whole", True, "data sets have no splits")


def _give_key(place: Place) -> bool:
    """Handle a key that is read from a text or a list, or an element of something that is not a list."""
    if not isinstance(place.node, ast.Subscript):
        return False
    schema, path, key = place.schema, place.path(place.node.value), place.value(place.node.slice)
    if not path or not isinstance(key, (str, int)):
        return False
    if isinstance(key, int):
        return schema.put(path, list_of(plain(), key + 1), "is a list")
    if schema.shape(path) is None and path[-1] == EACH:
        return schema.put(path[:-1], list_of(keyed(**{key: plain()})), f"is a list of what has the key {key}")
    if place.kind(path) == "list":
        return schema.put(path, keyed(**{key: plain()}), f"has the key {key}")
    return schema.add(path, key)


def _be_what_has(place: Place) -> bool:
    """Handle an attribute of another type: take the first type that has it."""
    if not isinstance(place.node, ast.Attribute):
        return False
    asked, receiver = place.node.attr, place.node.value
    path, value = place.path(receiver), place.value(receiver)
    if not path:  # numbers do not show their column
        return type(value) is int and hasattr(str, asked) and _make_texts(place)
    shapes: Iterable[tuple[type, Shape]] = (
        (str, plain()),
        (dict, keyed(**{key: by_name(key) for key in _keys_of(receiver, place)})),
        (list, list_of(plain())),
        (int, plain("integer")),
    )
    shape = next((shape for kind, shape in shapes if hasattr(kind, asked) and not isinstance(value, kind)), None)
    if asked in _OF_PICTURES and not hasattr(value, asked):
        shape = plain(IMAGE)
    if shape is None:
        return False
    if place.schema.shape(path) is None and path[-1] == EACH:
        return place.schema.put(path[:-1], list_of(shape), f"is a list of {shape['kind']}")
    return place.schema.put(path, shape, f"is a {shape['kind']}")


def _keys_of(node: ast.AST, place: Place) -> list[str]:
    """Return the keys that the enclosing function reads from an expression with `.get`, which raises nothing."""
    getter = f"{ast.unparse(node)}.get"
    asked = (each for each in every(place._function(), ast.Call) if ast.unparse(each.func) == getter)
    return [key for each in asked for key in map(constant, each.args[:1]) if key is not None]


def _make_number(place: Place) -> bool:
    """Handle a made text that is read as a number, in full or in part."""
    return place.schema.put(place.schema.maker.path(place.found[1]) or (), plain("digits"), "is a number")


def _add_columns(place: Place) -> bool:
    """Add the columns that a reward asks for by the names of its arguments."""
    return sum(place.schema.add((), name) for _, name in _QUOTED.findall(place.found[1])) > 0


def _parts(node: ast.AST | None) -> list[ast.expr]:
    """Return the operands of an expression; the value of a call comes last, as it may be the iterable of a loop."""
    match node:
        case ast.Call(args=args, keywords=keywords):
            return [*args, *(each.value for each in keywords), node]
        case ast.BinOp(left=left, right=right):
            return [left, right]
        case ast.Compare(left=left, comparators=others):
            return [left, *others]
        case ast.expr():
            return [node]
    return []


def _be(shape: Shape, why: str, *types: type) -> Repair:
    """Return a repair: the first operand that is part of a row, and is of none of these types, gets the shape."""

    def repair(place: Place) -> bool:
        wrong = (each for each in _parts(place.node) if not isinstance(place.value(each), types))
        return any(place.schema.put(path, copy.deepcopy(shape), why) for each in wrong if (path := place.path(each)))

    return repair


def _make_texts(place: Place) -> bool:
    """Make columns of whole numbers hold texts that a file does not give back as numbers."""
    is_new, schema = False, place.schema
    for column, shape in list(schema.columns.items()):
        if shape["kind"] == "one of" and all(type(each) is int for each in shape["values"]):
            is_new |= schema.put((column,), one_of([f"label {each}" for each in shape["values"]]), "is a text")
        elif shape["kind"] == "integer":
            is_new |= schema.put((column,), plain(), "is a text")
    return is_new


def _lengthen(place: Place) -> bool:
    """Add rows if a table has fewer than the script takes."""
    schema, asked = place.schema, int(place.found[1] or place.found[2] or 0) + 1
    return schema.rows < _MOST_ROWS and schema.set("rows", max(2 * schema.rows, asked), "")


def _have_element(place: Place) -> bool:
    """Add elements if a list has fewer than the script reads."""
    if not isinstance(place.node, ast.Subscript):
        return False
    path, index = place.path(place.node.value), place.value(place.node.slice)
    shape = place.schema.shape(path)
    if not path or not shape or shape["kind"] != "list" or not isinstance(index, int) or index < shape.get("least", 2):
        return False
    return place.schema.put(path, {**shape, "least": index + 1}, f"has {index + 1} elements")


def _have_key(place: Place) -> bool:
    """Handle a missing key of a row, a missing column, or a missing entry of the script's own table."""
    key, schema, node = place.error.args[0], place.schema, place.node
    base = place.value(node.value) if isinstance(node, ast.Subscript) else None
    path = schema.maker.path(base)
    if isinstance(node, ast.Subscript) and not path:
        table = list(base) if isinstance(base, dict) else []
        asked = place.path(node.slice) if table else None
        if asked and schema.put(asked, one_of([each for each in table if isinstance(each, str)] or table), ""):
            return True
        if base is None or isinstance(base, dict):
            written = place.path(node.value)
            path = written if place.kind(written) == "dict" else None
    if isinstance(key, int) and path and (shape := schema.shape(path)):
        return schema.put(path, list_of(shape, key + 1), "is a list")
    if not isinstance(key, str):
        return False
    if path and schema.shape(path) is not None:
        return schema.add(path, key)
    return re.fullmatch(r"[\w .:/()?-]{1,40}", key) is not None and _is_written(key, place) and schema.add((), key)


def _is_written(name: str, place: Place) -> bool:
    """Return whether a text occurs in the script, or is a name that a library asks for."""
    return name in texts(place.tree) or not isinstance(place.node, ast.Subscript)


def _have_columns(place: Place) -> bool:
    """Add the missing columns that a library names and the script mentions."""
    written = {node.attr for node in every(place.tree, ast.Attribute)}
    for text in texts(place.tree):
        written |= {text, *re.findall(r"\{(\w+)\}", text)}
    named = [name for _, name in _QUOTED.findall(_message(place.error)) if name in written - {"DataFrame", "Series"}]
    return sum(place.schema.add((), name) for name in named) > 0


def _add_label(place: Place) -> bool:
    """Add the labels, which a Trainer reads even if the script does not name them."""
    return place.schema.add((), "label")


Repair: TypeAlias = Callable[[Place], bool]
_IS_NUMBER, _IS_TEXT = _be(plain("number"), "is a number", int, float), _be(plain(), "is a text", str)
#: The kind of an exception, a pattern of its message, and a repair; the first repair that changes anything is used.
#: The most specific come first: a message with only one cause, then the type that an expression should have had, then
#: the number of elements that there should have been. A missing key comes last, as it may belong to anything.
_REPAIRS: tuple[tuple[str, str, Repair], ...] = (
    ("OSError", "", _name_file),
    ("ValueError", r"""Unknown split ["'](\w+)""", _add_split),
    ("KeyError", "Please first select a split", _leave_whole),
    ("ValueError", "did not return a loss from the inputs", _add_label),
    ("TypeError", r"missing \d+ required (?:positional|keyword-only) arguments?: (.+)", _add_columns),
    ("JSONDecodeError", "", _be({"kind": "json", "of": keyed()}, "is JSON")),
    ("UndefinedError", "", _be(turns("role"), "is a conversation")),  # a chat template asks for the role of a turn
    ("TypeError", r"indices must be integers|not subscriptable", _give_key),
    ("AttributeError", "", _be_what_has),
    ("ValueError", _OF_NUMBER, _make_number),
    ("TypeError", "must be real number|not supported|unsupported operand|multiply sequence", _IS_NUMBER),
    ("TypeError", "sequence item", _be(list_of(plain()), "is a list of texts")),
    ("TypeError", "concatenate str|expected (string|str)|must be (a )?str|not list|dict found", _IS_TEXT),
    ("TypeError", "int found", _make_texts),  # in a library: the column is unknown
    ("TypeError", "is not iterable", _be(list_of(plain()), "is a list", list, dict)),
    ("Exception", r"(?i)^(?!.*out of bounds for size 0).*(?:index (\d+) out of range|invalid key: (\d+))", _lengthen),
    ("Exception", "(?i)()()larger sample than population|exceed", _lengthen),
    ("IndexError", "", _have_element),
    ("KeyError", "", _have_key),
    ("KeyError", "", _have_columns),
    ("ValueError AttributeError", r"(?i)column|not in index|Index\(|DataFrame|Series", _have_columns),
)
