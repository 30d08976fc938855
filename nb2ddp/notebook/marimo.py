"""Read a marimo notebook: a Python file whose cells are functions.

marimo runs cells in the order of the names that they define and read, not in the order of the file
(https://docs.marimo.io/guides/reactivity/). This module runs nothing: Python's parser finds the cells, and its symbol
tables find their names.
"""

from __future__ import annotations

import ast
import inspect
import re
import symtable
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from graphlib import CycleError, TopologicalSorter

from nb2ddp.notebook.ipynb import Cell, CellKind, Notebook, read_metadata
from nb2ddp.results import NotebookError

_APP = re.compile(r"^[ \t]*app\s*(?::[^=\n]*)?=\s*marimo\.App\(", re.MULTILINE)
_IMPORT = re.compile(r"^[ \t]*import marimo\b", re.MULTILINE)
_FORMS = frozenset({"cell", "function", "class_definition", "setup", "_unparsable_cell"})


@dataclass(frozen=True)
class _Names:
    """The names that a piece of code binds at its top level, and those that it reads from elsewhere.

    Attributes:
        defines: names that it binds and leaves bound.
        reads: other names that it, or a function in it, looks up or deletes.
        late: names in `defines` that a function in it looks up at each call.
    """

    defines: frozenset[str] = frozenset()
    reads: frozenset[str] = frozenset()
    late: frozenset[str] = frozenset()


@dataclass(frozen=True)
class _Part:
    """A cell with the names that decide when it runs."""

    cell: Cell
    is_disabled: bool
    names: _Names

    @property
    def local(self) -> frozenset[str]:
        """The names that marimo keeps local to the cell."""
        return frozenset(n for n in self.names.defines if n.startswith("_") and not n.startswith("__"))


def is_marimo(text: str) -> bool:
    """Return whether a text is a marimo notebook."""
    return bool(_APP.search(text) and _IMPORT.search(text))


def parse_marimo(text: str, name: str) -> Notebook:
    """Parse the text of a marimo notebook.

    Cells are numbered in the order of the file, and returned in the order in which marimo runs them; a Markdown cell
    stays above the code cell that follows it. Cells that marimo does not run, disabled ones and those that need them,
    become raw cells.

    Args:
        text: the file's content, with `\\n` as line ends.
        name: the notebook's name in the script's first line.

    Raises:
        NotebookError: the file is not Python, or marimo would not run it.
    """
    module = _parsed(text)
    cells = _cells(module, text.split("\n"))
    parts = [_Part(cell, off, _names_of(cell.source) if cell.kind == "code" else _Names()) for cell, off in cells]
    _check_local_names(parts)
    return Notebook(name, tuple(_in_order(parts)), read_metadata(text))


# -- cells ------------------------------------------------------------------------------------------------------


def _cells(module: ast.Module, lines: Sequence[str]) -> Iterator[tuple[Cell, bool]]:
    """Yield each cell in the order of the file, and whether it is disabled. marimo runs nothing outside of cells."""
    found = ((statement, maker) for statement in module.body if (maker := _maker(statement)))
    for number, (statement, maker) in enumerate(found, start=1):
        yield _cell(statement, maker, number, lines), _is_disabled(maker)


def _maker(statement: ast.stmt) -> ast.expr | None:
    """Return the expression that makes a statement a cell, such as `app.cell` or `app.setup`; None for no cell."""
    makers: list[ast.expr] = []
    if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        makers = statement.decorator_list
    elif isinstance(statement, (ast.With, ast.AsyncWith)):
        makers = [statement.items[0].context_expr]
    elif isinstance(statement, ast.Expr):
        makers = [statement.value]
    return next((maker for maker in makers if _of_app(maker) in _FORMS), None)


def _of_app(node: ast.expr) -> str:
    """Return the name of an attribute of `app`: `cell` for `app.cell` and `app.cell(...)`; else an empty string."""
    owner, _, name = ast.unparse(node.func if isinstance(node, ast.Call) else node).rpartition(".")
    return name if owner == "app" else ""


def _cell(statement: ast.stmt, maker: ast.expr, number: int, lines: Sequence[str]) -> Cell:
    if isinstance(statement, ast.Expr):  # app._unparsable_cell(r"""...""")
        constant = maker.args[0] if isinstance(maker, ast.Call) and maker.args else None
        text = constant.value if isinstance(constant, ast.Constant) and isinstance(constant.value, str) else ""
        return _made(number, inspect.cleandoc(text), statement.lineno + 1, 4)
    if _of_app(maker) in ("cell", "setup"):
        return _body(statement, number, lines)
    first = (maker.end_lineno or maker.lineno) + 1
    return _made(number, "\n".join(lines[first - 1 : statement.end_lineno]), first)


def _body(statement: ast.stmt, number: int, lines: Sequence[str]) -> Cell:
    """Return a function's body as a cell, without the `return` of its names and its indentation."""
    body: list[ast.stmt] = getattr(statement, "body")  # noqa: B009 - a function's, a class's or a `with`'s
    code = list(body)
    last = statement.end_lineno or 0
    if isinstance(code[-1], ast.Return):
        last = code.pop().lineno - 1
    if len(code) == 1 and (markdown := _markdown(code[0])) is not None:
        return Cell(number, "markdown", markdown)
    if not code or isinstance(code[-1], ast.Pass):
        last = min(last, code.pop().lineno - 1) if code else last
    first = min(part.lineno for part in (body[0], *getattr(body[0], "decorator_list", ())))
    if lines[first - 1][: body[0].col_offset].strip():
        at = statement.lineno
        raise _refusal("a cell's code must begin on a line of its own", at, lines[at - 1])
    while lines[first - 2].strip()[:1] in ("", "#", "@"):  # include lines up to the header
        first -= 1
    source = _dedented(lines, first, last, body[0].col_offset, _strings(statement))
    return _made(number, source, first, body[0].col_offset)


def _made(number: int, source: str, first: int, indent: int = 0) -> Cell:
    """Return a code cell whose source begins in a line of the file."""
    source = source.rstrip()
    return Cell(number, "code", source, range(first, first + source.count("\n") + 1), indent)


def _markdown(statement: ast.stmt) -> str | None:
    """Return the text of `mo.md("...")`; None for other code."""
    call = statement.value if isinstance(statement, ast.Expr) else None
    if not isinstance(call, ast.Call) or ast.unparse(call.func) not in ("mo.md", "marimo.md") or len(call.args) != 1:
        return None
    try:
        text = ast.literal_eval(call.args[0])
    except ValueError:  # an f-string: its text is only known when it runs
        return None
    return inspect.cleandoc(text) if isinstance(text, str) else None


def _strings(statement: ast.stmt) -> list[tuple[int, int]]:
    """Return the first and last line of each string of several lines."""
    nodes = [node for node in ast.walk(statement) if isinstance(node, (ast.Constant, ast.JoinedStr))]
    return [(node.lineno, last) for node in nodes if (last := node.end_lineno or 0) > node.lineno]


def _dedented(lines: Sequence[str], first: int, last: int, indent: int, strings: Sequence[tuple[int, int]]) -> str:
    """Return lines without their indentation; as in marimo, strings keep it if one of their lines is indented less."""
    kept: set[int] = set()
    for start, end in strings:
        inside = [number for number in range(start + 1, end + 1) if lines[number - 1].strip()]
        if any(lines[number - 1][:indent].strip() for number in inside):
            kept.update(inside)
    return "\n".join(
        line if number in kept else line[min(indent, len(line) - len(line.lstrip())) :]
        for number, line in enumerate(lines[first - 1 : last], start=first)
    )


def _is_disabled(decorator: ast.expr) -> bool:
    keywords = decorator.keywords if isinstance(decorator, ast.Call) else []
    return any(k.arg == "disabled" and isinstance(k.value, ast.Constant) and k.value.value is True for k in keywords)


# -- order ------------------------------------------------------------------------------------------------------


def _check_local_names(parts: Sequence[_Part]) -> None:
    """Refuse functions that would read another cell's `_name` in a script; marimo keeps one per cell."""
    for part in parts:
        for name in sorted(part.local & part.names.late):
            others = [other.cell.number for other in parts if name in other.local and other is not part]
            if others:
                message = (
                    f"cells {part.cell.number} and {others[0]} have a `{name}` of their own, which a function reads"
                )
                raise _refusal(f"{message}: a script has one; rename one of them", *_first(part.cell))


def _in_order(parts: list[_Part]) -> list[Cell]:
    """Return the cells as marimo runs them: each after those whose names it reads, else in file order."""
    code = {part.cell.number: part for part in parts if part.cell.kind == "code"}
    owners: dict[str, int] = {}
    for number, part in code.items():
        for name in sorted(part.names.defines - part.local):
            if name in owners:
                message = f"marimo would not run this notebook: cells {owners[name]} and {number} both define `{name}`"
                raise _refusal(message, *_first(part.cell))
            owners[name] = number
    after = {n: {owners[name] for name in part.names.reads if owners.get(name, n) != n} for n, part in code.items()}
    below: dict[int, list[Cell]] = {}
    above: list[Cell] = []
    for part in parts:
        above.append(part.cell)
        if part.cell.kind == "code":
            below[part.cell.number], above = above, []
    off: set[int] = set()
    ordered = []
    for number in _sorted(after, code):
        if code[number].is_disabled or after[number] & off:
            off.add(number)
        kind: CellKind = "raw" if number in off else "code"
        ordered += [*below[number][:-1], replace(below[number][-1], kind=kind)]
    return ordered + above


def _sorted(after: dict[int, set[int]], code: dict[int, _Part]) -> Iterator[int]:
    """Yield the cells' numbers in a topological order, smaller ones first."""
    sorter, ready = TopologicalSorter(after), list[int]()
    try:
        sorter.prepare()
    except CycleError as error:
        circle = sorted(set(error.args[1]))
        reason = f"cells {', '.join(map(str, circle))} wait for each other's names; rename one"
        raise _refusal(f"marimo would not run this notebook: {reason}", *_first(code[circle[0]].cell)) from None
    while sorter.is_active():
        ready = sorted([*ready, *sorter.get_ready()])
        sorter.done(number := ready.pop(0))
        yield number


def _first(cell: Cell) -> tuple[int, str]:
    """Return the first line of a cell: its number in the file, and its text."""
    return cell.lines[0], cell.source.split("\n")[0]


# -- Python ------------------------------------------------------------------------------------------------------


def _parsed(text: str) -> ast.Module:
    """Return a Python file as the running Python parses it.

    Raises:
        NotebookError: it is not Python; the error has the line of the file.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # such as on "\d" in a string, which is the author's choice
            return ast.parse(text)
    except SyntaxError as fault:
        line = fault.lineno or 1
        raise _refusal(
            f"not a marimo notebook: not Python ({fault.msg})", line, [*text.split("\n"), ""][line - 1]
        ) from None
    except (ValueError, RecursionError) as fault:
        raise NotebookError(f"not a marimo notebook: not Python ({fault})") from None


def _refusal(message: str, line: int, text: str) -> NotebookError:
    """Return an error on a line of the file, with its number and its text."""
    error = NotebookError(message)
    error.diagnostics = (replace(error.diagnostic, file_line=line, line_text=text),)
    return error


def _names_of(source: str) -> _Names:
    """Return the names of some code; none if it is not Python."""
    try:
        tree, table = ast.parse(source), symtable.symtable(source, "cell", "exec")
    except SyntaxError:
        return _Names()
    nodes = [node for node in ast.walk(tree) if isinstance(node, ast.Name)]
    stored = {name.id for name in nodes if isinstance(name.ctx, ast.Store)}
    deleted = {name.id for name in nodes if isinstance(name.ctx, ast.Del)} - stored
    caught = {node.name for node in ast.walk(tree) if isinstance(node, ast.ExceptHandler) and node.name} - stored
    bound = {s.get_name() for s in table.get_symbols() if s.is_assigned() or s.is_imported() or s.is_namespace()}
    own = bound - deleted - caught
    late = frozenset[str]().union(*map(_reads, table.get_children())) & own
    return _Names(frozenset(own), (_reads(table) | deleted) - own - caught, late)


def _reads(table: symtable.SymbolTable) -> frozenset[str]:
    """Return the global names that code, or a function in it, looks up."""
    is_top = table.get_type() == "module"
    own = {s.get_name() for s in table.get_symbols() if s.is_referenced() and (is_top or s.is_global())}
    return frozenset(own).union(*map(_reads, table.get_children()))
