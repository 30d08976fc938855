"""From the exception that ends a preparation to what its made rows, files and variables lacked.

Only what the exception itself tells is learnt: where it was raised, the values there, and which of them were made.
"""

from __future__ import annotations

import ast
import json
import linecache
import os
import re
import sys
import types
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from .schema import read_of_rows
from .shapes import EACH, IMAGE, INSIDE, by_name, keyed, list_of, one_of, plain, turns

if TYPE_CHECKING:
    from .schema import Schema
    from .shapes import Path, Shape

_EMPTY = re.compile(
    r"num_samples=0|out of bounds for size 0|empty (sequence|iterable|range|dataset)|n_samples=0|is empty|No columns|"
    r"(?:list|tuple) index out of range|at least one|non-zero|Cannot choose from|division by zero|must be non-empty|"
    r"single positional indexer|has no rows|no examples|zero-size|should have at least|dictionary is empty|"
    r"multiple columns to the single column"
)
_QUOTED = re.compile(r"""(['"])(.+?)\1""")
_LENGTHS = re.compile(r"Expected axis has \d+ elements, new values have (\d+) elements|(\d+) columns passed")
_SIZE = re.compile(r"Index (\d+) out of range|invalid key: (\d+)|larger sample than population|exceed", re.IGNORECASE)
_NUMBER = re.compile(r"invalid literal for int|could not convert string to|Unknown label type|unsupported format")
#: What has an attribute, in the order in which it is tried.
_HAS: tuple[tuple[type, Callable[[], Shape]], ...] = (
    (str, plain),
    (dict, lambda: keyed()),
    (list, lambda: list_of(plain())),
    (int, lambda: plain("integer")),
)
_LONG = 12  #: sentences, at least, of a text that is longer than another one
_OF_FOLDERS = frozenset("listdir scandir walk iterdir glob rglob chdir load_from_disk".split())
_OF_PICTURES = frozenset("convert resize size mode width height save thumbnail crop tobytes getbands".split())


@dataclass
class Place:
    """Where the script was when an exception was raised.

    Attributes:
        node: the expression that raised it; None where it cannot be told.
        frame: its names.
        tree: the script.
        schema: what its rows hold.
        parents: of each node of the tree.
    """

    node: ast.AST | None
    frame: types.FrameType
    tree: ast.Module
    schema: Schema
    parents: dict[ast.AST, ast.AST] = field(default_factory=dict)

    def value(self, node: ast.AST) -> Any:
        """The value of an expression that calls nothing; None of any other."""
        if any(isinstance(each, (ast.Call, ast.Await, ast.Yield, ast.NamedExpr)) for each in ast.walk(node)):
            return None
        try:
            code = compile(ast.Expression(node), "<value>", "eval")  # type: ignore[arg-type]
            return eval(code, self.frame.f_globals, {**self.frame.f_globals, **self.frame.f_locals})
        except Exception:
            return None

    def keys_of(self, node: ast.AST) -> list[str]:
        """The keys that the script reads of an expression in the same function, with `.get`, which misses none."""
        holder = ast.unparse(node)
        calls = (each for each in ast.walk(self._around()) if isinstance(each, ast.Call) and each.args)
        asked = (each.args[0] for each in calls if ast.unparse(each.func) == f"{holder}.get")
        return [each.value for each in asked if isinstance(each, ast.Constant) and isinstance(each.value, str)]

    def path(self, node: ast.AST) -> Path | None:
        """Which part of a made row an expression is: by its value where that tells, else by how it is written."""
        found = self.schema.maker.path(self.value(node))
        return found if found else self._written(node)

    def _written(self, node: ast.AST) -> Path | None:
        if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
            base, key = self.path(node.value), node.slice.value
            if not isinstance(key, str):
                is_divisible = base and (self._is_list(base) or isinstance(self.value(node.value), str))
                return (*base, EACH) if base and is_divisible else base
            if base and self.schema.shape((*base, key)) is not None:
                return (*base, key)
            return (key,) if key in self.schema.columns else None
        if isinstance(node, ast.Attribute):
            return (node.attr,) if node.attr in self.schema.columns else None
        if isinstance(node, ast.Call):
            return self._called(node)
        return self._named(node.id) if isinstance(node, ast.Name) else None

    def _called(self, node: ast.Call) -> Path | None:
        name = ast.unparse(node.func).split(".")[-1]
        if name == "get" and isinstance(node.func, ast.Attribute) and node.args:
            asked = ast.Subscript(node.func.value, node.args[0], ast.Load())
            return self.path(asked)
        if name == "loads" and node.args:
            found = self.path(node.args[0])
            return (*found, INSIDE) if found else None
        if isinstance(node.func, ast.Attribute) and not isinstance(node.func.value, ast.Constant):
            return self.path(node.func.value)
        return self.path(node.args[0]) if node.args and name in ("str", "list", "len", "enumerate") else None

    def _named(self, name: str) -> Path | None:
        """The path of a variable, from where a loop or an assignment binds it."""
        for node in ast.walk(self._around()):
            if isinstance(node, (ast.For, ast.comprehension)):
                found = self._looped(node.target, node.iter, name)
                if found:
                    return found
            elif isinstance(node, ast.Assign) and _binds(node, name) and name not in _names(node.value):
                return self.path(node.value)
        return None

    def _looped(self, target: ast.expr, over: ast.expr, name: str) -> Path | None:
        if isinstance(target, ast.Tuple) and isinstance(over, ast.Call) and ast.unparse(over.func) == "zip":
            for one, source in zip(target.elts, over.args, strict=False):
                if found := self._looped(one, source, name):
                    return found
        if isinstance(target, ast.Tuple) and isinstance(over, ast.Call) and ast.unparse(over.func) == "enumerate":
            return self._looped(target.elts[-1], over.args[0], name)
        if not (isinstance(target, ast.Name) and target.id == name):
            return None
        path, value = self.path(over), self.value(over)
        if path is None:
            return None
        is_batch = isinstance(value, list) and not self._is_list(path)
        return path if is_batch else (*path, EACH)

    def _is_list(self, path: Path) -> bool:
        return (self.schema.shape(path) or {}).get("kind") == "list"

    def _around(self) -> ast.AST:
        """The function that the expression is in, or the script."""
        node = self.node
        while node is not None and not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            node = self.parents.get(node)
        return node if node is not None and not isinstance(node, ast.Lambda) else self.tree


def _binds(node: ast.Assign, name: str) -> bool:
    return any(isinstance(target, ast.Name) and target.id == name for target in node.targets)


def _names(node: ast.AST) -> set[str]:
    return {each.id for each in ast.walk(node) if isinstance(each, ast.Name)}


def place_of(error: BaseException, script: str, source: str, schema: Schema) -> Place | None:
    """Where the script was, or None where the exception does not go through it."""
    entries = [each for each in _entries(error) if each.tb_frame.f_code.co_filename == script]
    if not entries:
        return None
    tree = ast.parse(source)
    parents = {child: node for node in ast.walk(tree) for child in ast.iter_child_nodes(node)}
    return Place(_node(entries[-1], tree), entries[-1].tb_frame, tree, schema, parents)


def _entries(error: BaseException) -> Iterator[types.TracebackType]:
    entry = error.__traceback__
    while entry is not None:
        yield entry
        entry = entry.tb_next


def _node(entry: types.TracebackType, tree: ast.Module) -> ast.AST | None:
    """The innermost expression or statement at which a frame was."""
    line = entry.tb_lineno
    if sys.version_info >= (3, 11):
        positions = list(entry.tb_frame.f_code.co_positions())[entry.tb_lasti // 2]
        for node in ast.walk(tree):
            about = (getattr(node, name, None) for name in ("lineno", "end_lineno", "col_offset", "end_col_offset"))
            if tuple(about) == positions and not isinstance(node, ast.Expr):
                return node
    found = [node for node in ast.walk(tree) if getattr(node, "lineno", None) == line]
    return next((node for node in found if isinstance(node, (ast.Subscript, ast.Call))), found[0] if found else None)


def learn(error: BaseException, place: Place, made: Callable[[str], bool], asked: list[str]) -> bool:
    """Let the schema have what an exception says that it lacked.

    Args:
        error: what was raised.
        place: where.
        made: makes a file that was not there, and says whether that is possible.
        asked: paths that the script asked for in vain, without an exception.

    Returns:
        Whether anything was learnt.
    """
    for each in chain(error):
        if any(rule(each, place) for rule in _RULES):
            return True
        if isinstance(each, (OSError, RuntimeError)) and sum(made(name) for name in _missing(each, place)):
            return True
    if sum(place.schema.put((name,), shape, "is asked for") for name, shape in _not_there(place)):
        return True
    is_own = isinstance(place.node, (ast.Raise, ast.Assert)) or isinstance(error, SystemExit)
    if is_own or isinstance(error, StopIteration) or _EMPTY.search(_said(error)):
        named = sum(_name_files(name, "png", place) for name in asked)
        if named or sum(made(name) for name in asked if not is_model(name)):
            return True
        if not place.schema.keeps_all and not isinstance(error, SystemExit):
            place.schema.keeps_all = True
            return True
    return False


def _not_there(place: Place) -> list[tuple[str, Shape]]:
    """The columns that the script asks for in vain, without an exception."""
    return [each for each in read_of_rows(place.tree).items() if each[0] not in place.schema.columns]


def is_model(path: str) -> bool:
    """Whether a path is one of a model of the user's own, an adapter or a checkpoint: no file made here is one."""
    return re.search(r"(?i)lora|adapter|checkpoint|model|merged", os.path.basename(os.path.normpath(path))) is not None


def _said(error: BaseException) -> str:
    """The message of an exception; that of a KeyError without the quotes around it."""
    return str(error.args[0]) if isinstance(error, KeyError) and error.args else str(error)


def chain(error: BaseException | None) -> Iterator[BaseException]:
    """An exception, and those that it came of."""
    seen = error
    while seen is not None:
        yield seen
        seen = seen.__cause__ or seen.__context__


def _missing(error: BaseException, place: Place) -> list[str]:
    """The files that an exception says are not there; folders only where the script asks for what is in one."""
    given = getattr(error, "filename", None) or (_said(error) if isinstance(error, FileNotFoundError) else None)
    named = [os.fsdecode(given)] if isinstance(given, (str, bytes)) else []
    named += [text for _, text in _QUOTED.findall(_said(error)) if os.sep in text or "." in text]
    node = place.node.iter if isinstance(place.node, ast.For) else place.node
    asked = (each for each in ast.walk(node or place.tree) if isinstance(each, ast.Call))
    called = {ast.unparse(each.func).split(".")[-1] for each in asked}
    return [name for name in dict.fromkeys(named) if called & _OF_FOLDERS or os.path.splitext(name)[1]]


def _names_no_file(error: BaseException, place: Place) -> bool:
    """A text that was made is taken for the name of a file."""
    name = getattr(error, "filename", None)
    if not isinstance(error, OSError) or not isinstance(name, str):
        return False
    kind = "wav" if _goes_through(error, "soundfile", "librosa") else "txt"
    return _name_files(name, "png" if _goes_through(error, "PIL", "cv2") else kind, place)


def _name_files(name: str, kind: str, place: Place) -> bool:
    """Let what a name was made of be one of a few that can be files; `kind` is theirs where the name has none."""
    base = os.path.basename(name)
    path = place.schema.maker.path(base) or place.schema.maker.path(os.path.splitext(base)[0])
    if not path or (place.schema.shape(path) or {}).get("kind") == "one of":
        return False
    has_kind = re.search(r"\.[a-z0-9]{2,5}$", base) is not None
    names = [f"made{number}" if has_kind else f"made{number}.{kind}" for number in range(4)]
    return place.schema.put(path, one_of(names), "is the name of a file")


def _goes_through(error: BaseException, *packages: str) -> bool:
    files = [entry.tb_frame.f_code.co_filename for entry in _entries(error)]
    return any(f"{os.sep}{package}" in file for file in files for package in packages)


def _lacks_key(error: BaseException, place: Place) -> bool:
    """A key, a column, or an entry of the script's own table."""
    if not isinstance(error, KeyError) or not error.args or _is_of_attribute(error) or _is_of_no_row(error, place):
        return False
    key, schema, node = error.args[0], place.schema, place.node
    base = place.value(node.value) if isinstance(node, ast.Subscript) else None
    if isinstance(node, ast.Subscript) and isinstance(base, dict) and base:
        path = place.path(node.slice)
        is_table = not schema.maker.path(base) and path is not None
        if is_table and schema.put(path or (), one_of([k for k in base if isinstance(k, type(next(iter(base))))]), ""):
            return True
    path = schema.maker.path(base) if isinstance(base, Mapping) else None
    if not path and isinstance(node, ast.Subscript) and (base is None or isinstance(base, Mapping)):
        written = place.path(node.value)
        path = written if written and (schema.shape(written) or {}).get("kind") == "dict" else None
    if isinstance(key, int) and path and (shape := schema.shape(path)):
        return schema.put(path, list_of(shape, key + 1), "is a list")
    if not isinstance(key, str):
        return False
    if path and schema.shape(path) is not None:
        return schema.add(path, key)
    return re.fullmatch(r"[\w .:/()?-]{1,40}", key) is not None and _is_written(key, place) and schema.add((), key)


def _is_of_no_row(error: BaseException, place: Place) -> bool:
    """Whether a library looks for a key in a dictionary of its own, such as that of its settings."""
    entries = [*_entries(error)]
    frame = entries[-1].tb_frame if entries else place.frame
    if frame is place.frame:
        return False
    tree = ast.parse("".join(linecache.getlines(frame.f_code.co_filename)))
    node = _node(entries[-1], tree)
    base = getattr(getattr(node, "func", node), "value", None)  # of `.pop()`, too
    value = Place(node, frame, tree, place.schema).value(base) if isinstance(base, ast.expr) else None
    return isinstance(value, dict) and bool(value) and not value.keys() & place.schema.columns.keys()


def _is_of_attribute(error: BaseException) -> bool:
    """Whether an object looks up its attributes as keys, and had none of this name."""
    return any(entry.tb_frame.f_code.co_name == "__getattr__" for entry in _entries(error))


def _is_written(name: str, place: Place) -> bool:
    """Whether a text is one of the script's, or a name that a library asks for."""
    texts = (node.value for node in ast.walk(place.tree) if isinstance(node, ast.Constant))
    return name in texts or not isinstance(place.node, ast.Subscript)


def _names_columns(error: BaseException, place: Place) -> bool:
    """A library names columns that are not there: those that the script writes."""
    if not isinstance(error, (KeyError, ValueError, AttributeError)):
        return False
    texts = {node.value for node in ast.walk(place.tree) if isinstance(node, ast.Constant)}
    texts |= {node.attr for node in ast.walk(place.tree) if isinstance(node, ast.Attribute)}
    is_of_table = re.search(
        r"column|not in index|Index\(|DataFrame|Series|KeyError",
        f"{type(error).__name__} {_said(error)}",
        re.IGNORECASE,
    )
    texts |= {name for text in texts if isinstance(text, str) for name in re.findall(r"\{(\w+)\}", text)}
    named = [name for _, name in _QUOTED.findall(_said(error)) if name in texts] if is_of_table else []
    return sum(place.schema.add((), name) for name in named if name not in ("DataFrame", "Series")) > 0


def _has_already(error: BaseException, place: Place) -> bool:
    """The script itself adds a column of this name, or gives it to another one."""
    named = re.search(r"column name (\S+) already in the dataset", _said(error))
    if not named or place.schema.columns.pop(named[1], None) is None:
        return False
    place.schema.learnt.append(f"{named[1]} is made by the script")
    return True


def _lacks_labels(error: BaseException, place: Place) -> bool:
    """A Trainer found nothing to compare with: the labels, which it reads without a word of the script's."""
    return "did not return a loss from the inputs" in str(error) and place.schema.add((), "label")


def _is_no_dictionary(error: BaseException, place: Place) -> bool:
    """A key is read of a text, or of a list."""
    node, schema = place.node, place.schema
    if not isinstance(error, TypeError) or not re.search(r"indices must be integers|not subscriptable", _said(error)):
        return False
    if not isinstance(node, ast.Subscript):
        return False
    path, key = place.path(node.value), place.value(node.slice)
    if not path:
        return False
    if isinstance(key, str):
        return _put_key(schema, path, key)
    return isinstance(key, int) and schema.put(path, list_of(plain(), key + 1), "is a list")


def _is_no_conversation(error: BaseException, place: Place) -> bool:
    """A chat template is given what does not say whose turn it is."""
    if type(error).__name__ != "UndefinedError" or not isinstance(place.node, ast.Call):
        return False
    asked = next(iter([*place.node.args, *(each.value for each in place.node.keywords)]), place.node)
    given = _bound_to(asked, place)
    if not isinstance(given, ast.List):
        path = place.path(asked)
        return path is not None and place.schema.put(path, turns("role"), "is a conversation")
    return sum(_is_turn(path, place.schema) for each in given.elts if (path := place.path(each))) > 0


def _is_turn(path: Path, schema: Schema) -> bool:
    if schema.shape(path) is None:
        return schema.put(path[:-1], turns("role"), "is a conversation")
    return schema.put(path, keyed(role=one_of(["user"]), content=plain()), "is a turn of a conversation")


def _put_key(schema: Schema, path: Path, key: str) -> bool:
    """Let what is at a path, or what holds it where it is an element of a text, have a key."""
    if schema.shape(path) is None and path[-1] == EACH:
        return schema.put(path[:-1], list_of(keyed(**{key: plain()})), f"is a list of what has the key {key}")
    shape = schema.shape(path) or {}
    if shape.get("kind") == "list":
        return schema.put(path, keyed(**{key: plain()}), f"has the key {key}")
    return schema.add(path, key)


def _has_no_attribute(error: BaseException, place: Place) -> bool:
    """A method of another type is asked for."""
    if not isinstance(error, AttributeError) or not isinstance(place.node, ast.Attribute):
        return False
    asked, path, value = place.node.attr, place.path(place.node.value), place.value(place.node.value)
    if not path:  # numbers do not tell of which column they are
        is_text = type(value) is int and hasattr(str, asked)
        return is_text and sum(_as_text(place.schema, name) for name in list(place.schema.columns)) > 0
    if asked in _OF_PICTURES and not hasattr(value, asked):
        return place.schema.put(path, plain(IMAGE), "is a picture")
    shape = next((make() for kind, make in _HAS if hasattr(kind, asked) and not isinstance(value, kind)), None)
    if shape is None:
        return False
    if shape["kind"] == "dict":
        shape = keyed(**{key: by_name(key) for key in place.keys_of(place.node.value)})
    if place.schema.shape(path) is None and path[-1] == EACH:
        return place.schema.put(path[:-1], list_of(shape), f"is a list of {shape['kind']}")
    return place.schema.put(path, shape, f"is a {shape['kind']}")


def _is_no_number(error: BaseException, place: Place) -> bool:
    """A text that was made is read as a number."""
    if not isinstance(error, ValueError) or not _NUMBER.search(_said(error)):
        return False
    said = _said(error).partition(": ")[2].strip()
    text = ast.literal_eval(said) if said[:1] in "'\"" and said[-1:] in "'\"" else said
    path = place.schema.maker.path(text)
    shape = place.schema.shape(path) if path else None
    if path is None or shape is None:
        return False
    if "mark" in shape:
        return place.schema.put(path, {**shape, "ends": "digits"}, "ends with a number")
    return place.schema.put(path, plain("digits"), "is a number")


def _is_formatted_as_number(error: BaseException, place: Place) -> bool:
    """A text that was made is formatted as a number: `f"{row['x']:.2f}"`."""
    if not isinstance(error, ValueError) or "Unknown format code" not in _said(error) or place.node is None:
        return False
    formatted = [part for part in ast.walk(place.node) if isinstance(part, ast.FormattedValue) and part.format_spec]
    texts = [part.value for part in formatted if isinstance(place.value(part.value), str)]
    paths = [path for text in texts if (path := place.path(text))]
    return sum(place.schema.put(path, plain("number"), "is a number") for path in paths) > 0


def _lacks_argument(error: BaseException, place: Place) -> bool:
    """A reward asks for columns of the data set by the names of its arguments."""
    missing = re.search(r"missing \d+ required (?:positional|keyword-only) arguments?: (.+)", _said(error))
    if not isinstance(error, TypeError) or not missing:
        return False
    return sum(place.schema.add((), name) for _, name in _QUOTED.findall(missing[1])) > 0


def _is_no_json(error: BaseException, place: Place) -> bool:
    """A text that was made is read as JSON, or as a literal of Python."""
    if isinstance(error, json.JSONDecodeError):
        path = place.schema.maker.path(error.doc)
    elif isinstance(error, (SyntaxError, ValueError)) and isinstance(place.node, ast.Call):
        is_read = ast.unparse(place.node.func).endswith("literal_eval")
        path = place.path(place.node.args[0]) if is_read and place.node.args else None
    else:
        return False
    if not path or (place.schema.shape(path) or {}).get("kind") == "json":
        return False
    return place.schema.put(path, {"kind": "json", "of": keyed()}, "is JSON")


def _is_of_other_type(error: BaseException, place: Place) -> bool:
    """An operator, a loop or a function takes another type."""
    said, node, schema = _said(error), place.node, place.schema
    if not isinstance(error, TypeError):
        return False
    if isinstance(node, (ast.BinOp, ast.Compare)):
        sides = [node.left, node.right] if isinstance(node, ast.BinOp) else [node.left, node.comparators[0]]
        values = [place.value(side) for side in sides]
        if "can only concatenate str" in said and (path := place.path(sides[1])):
            return schema.put(path, plain(), "is a text")
        for side, value, other in zip(sides, values, reversed(values), strict=True):
            path = place.path(side)
            if path and isinstance(value, str) and isinstance(other, (int, float)):
                return schema.put(path, plain("number"), "is a number")
            if path and isinstance(other, str) and not isinstance(value, str):
                return schema.put(path, plain(), "is a text")
    if "expected str instance, int found" in said and sum(_as_text(schema, name) for name in list(schema.columns)):
        return True  # in a library: whichever it is
    given = node.args if isinstance(node, ast.Call) else []
    paths = [path for each in given if (path := place.path(each))]
    if paths and re.search(r"must be real number|not supported for the input types|bad operand type", said):
        return schema.put(paths[0], plain("number"), "is a number")
    if paths and re.search(r"expected (string|str)|must be (a )?str|not list|dict found", said):
        shape = schema.shape(paths[0]) or {}
        if "sequence item" in said and shape.get("kind") == "list":
            return schema.put(paths[0], list_of(plain()), "is a list of texts")
        return schema.put(paths[0], plain(), "is a text")
    if "is not iterable" in said:  # of what is passed to zip() and the like, what each element is
        over = [node, *given] if isinstance(node, ast.expr) else []
        found = [
            path for each in over if not isinstance(place.value(each), (list, dict)) and (path := place.path(each))
        ]
        return sum(schema.put(path, list_of(plain()), "is a list") for path in dict.fromkeys(found)) > 0
    return False


def _as_text(schema: Schema, column: str) -> bool:
    """Let a column of whole numbers have texts: such that a file does not give them back as numbers."""
    shape = schema.columns[column]
    if shape["kind"] == "one of" and all(type(each) is int for each in shape["values"]):
        return schema.put((column,), one_of([f"label {each}" for each in shape["values"]]), "is a text")
    return shape["kind"] == "integer" and schema.put((column,), plain(), "is a text")


def _is_too_short(error: BaseException, place: Place) -> bool:
    """A list, the parts of a text, or a whole table have fewer elements than are read."""
    said, node, schema = _said(error), place.node, place.schema
    if (lengths := _LENGTHS.search(said)) and (width := int(lengths[1] or lengths[2])) != schema.width:
        schema.width = width
        schema.learnt.append(f"tables have {width} columns")
        return True
    if (size := _SIZE.search(said)) and schema.rows < 20_000 and "out of bounds for size 0" not in said:
        schema.rows = max(2 * schema.rows, *(int(each) + 1 for each in size.groups() if each), 0)
        return True
    if isinstance(error, IndexError) and isinstance(node, ast.Subscript):
        index = place.value(node.slice)
        if _is_divided(node.value, place, index if isinstance(index, int) else 1):
            return True
        path = place.path(node.value)
        shape = schema.shape(path) if path else None
        if path and shape == plain() and "string index" in said:
            return schema.put(path, {**shape, "parts": _LONG}, "is a long text")
        if path and shape and shape["kind"] == "list" and isinstance(index, int) and index >= shape.get("least", 2):
            return schema.put(path, {**shape, "least": index + 1}, f"has {index + 1} elements")
    if isinstance(error, ValueError) and "to unpack" in said and isinstance(node, (ast.Assign, ast.Tuple)):
        statement = node if isinstance(node, ast.Assign) else place.parents.get(node)
        count = re.search(r"expected (?:at least )?(\d+)", said)
        if isinstance(statement, ast.Assign) and count:
            return _is_divided(statement.value, place, int(count[1]) - 1)
    return False


def _is_too_long(error: BaseException, place: Place) -> bool:
    """A text has more tokens, which are single letters here, than it is padded to."""
    found = re.search(r"expected sequence of length (\d+) at dim 1 \(got (\d+)\)", _said(error))
    if not found or int(found[2]) <= int(found[1]):
        return False
    texts = [name for name, shape in place.schema.columns.items() if shape == plain()]
    return sum(place.schema.put((name,), plain() | {"most": 1}, "is short") for name in texts) > 0


def _is_divided(node: ast.AST, place: Place, last: int) -> bool:
    """Whether an expression divides a text at a mark: the text then has it, as often as needed."""
    node = _bound_to(node, place)
    if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)):
        return False
    if node.func.attr not in ("split", "rsplit", "partition") or not node.args:
        return False
    mark, path = place.value(node.args[0]), place.path(node.func.value)
    shape = place.schema.shape(path) if path else None
    if not isinstance(mark, str) or not path or shape is None:
        return False
    if "mark" in shape:  # at two marks: the second one goes before the last part
        return place.schema.put(path, {**shape, "begin": f"{shape.get('begin', '')} {mark}"}, f"has {mark!r} in it")
    return place.schema.put(path, {**plain(), "mark": mark, "parts": max(last, 1) + 1}, f"has {mark!r} in it")


def _bound_to(node: ast.AST, place: Place) -> ast.AST:
    """What a name is first bound to in the script; any other expression itself."""
    bound = (each for each in ast.walk(place.tree) if isinstance(each, ast.Assign))
    return next((each.value for each in bound if isinstance(node, ast.Name) and _binds(each, node.id)), node)


def _lacks_variable(error: BaseException, place: Place) -> bool:
    """A variable of the environment is read as a number."""
    if not isinstance(error, ValueError) or "'rehearsal'" not in _said(error):
        return False
    names = [name for name, value in place.schema.variables.items() if value == "rehearsal"]
    place.schema.variables |= dict.fromkeys(names, "1")
    return bool(names)


def _has_no_split(error: BaseException, place: Place) -> bool:
    """A split of a data set that the script names; or it takes one that is not divided."""
    if "Please first select a split" in _said(error) and not place.schema.is_whole:
        place.schema.is_whole = True
        place.schema.learnt.append("data sets have no splits")
        return True
    if not re.search(r"Unknown split|split", _said(error)) or not isinstance(error, (ValueError, KeyError)):
        return False
    named = [name for _, name in _QUOTED.findall(_said(error))]
    if not named or named[0] in place.schema.splits or not re.search(r"Unknown split", _said(error)):
        return False
    place.schema.splits.append(named[0])
    return True


_RULES: tuple[Callable[[BaseException, Place], bool], ...] = (
    _names_no_file,
    _lacks_variable,
    _has_no_split,
    _is_no_json,
    _is_no_dictionary,
    _is_no_conversation,
    _has_no_attribute,
    _is_no_number,
    _is_formatted_as_number,
    _lacks_argument,
    _is_of_other_type,
    _is_too_short,
    _is_too_long,
    _lacks_key,
    _has_already,
    _names_columns,
    _lacks_labels,
)
