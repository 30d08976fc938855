"""Read a marimo notebook: a Python file whose cells are functions.

marimo runs cells in the order of the names that they define and read, not in the order of the file
(https://docs.marimo.io/guides/reactivity/). Nothing is run here: cells are found by Python's own parser, and their
names by its symbol tables.
"""

from __future__ import annotations

import ast
import heapq
import inspect
import io
import re
import tokenize
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from nb2ddp.notebook.ipynb import Cell, CellKind, Notebook
from nb2ddp.notebook.metadata import read_metadata
from nb2ddp.notebook.python import names, parse_python
from nb2ddp.results import NotebookError

_APP = re.compile(r"^[ \t]*app\s*(?::[^=\n]*)?=\s*marimo\.App\(", re.MULTILINE)
_IMPORT = re.compile(r"^[ \t]*import marimo\b", re.MULTILINE)
_DECORATORS = frozenset({"cell", "function", "class_definition"})


@dataclass(frozen=True)
class _Part:
    """A cell with the names that decide when it runs."""

    cell: Cell
    defines: frozenset[str] = frozenset()
    reads: frozenset[str] = frozenset()
    deletes: frozenset[str] = frozenset()
    local: frozenset[str] = frozenset()
    #: Those of its local names that its functions read.
    kept: frozenset[str] = frozenset()
    is_disabled: bool = False


def is_marimo(text: str) -> bool:
    """True for the text of a marimo notebook."""
    return bool(_APP.search(text) and _IMPORT.search(text))


def parse_marimo(text: str, name: str) -> Notebook:
    """Parse the text of a marimo notebook.

    Cells count in the order of the file, and stand in the order in which marimo would run them; a Markdown cell stays
    above the code cell that follows it. What marimo does not run, a disabled cell and those that need it, is raw.

    Args:
        text: the file's content, with `\\n` as line ends.
        name: what to call the notebook in the script's first line.

    Raises:
        NotebookError: the file is not Python, or marimo would not run it.
    """
    module = parse_python(text, "marimo notebook")
    parts = [_part(cell, is_disabled) for cell, is_disabled in _cells(module, text.split("\n"))]
    _check_local_names(parts)
    return Notebook(name, tuple(_in_order(parts)), read_metadata(text))


# -- cells ------------------------------------------------------------------------------------------------------


def _cells(module: ast.Module, lines: Sequence[str]) -> Iterator[tuple[Cell, bool]]:
    """Each cell in the order of the file, and whether it is disabled."""
    strings = _strings(lines)
    number = 0
    has_app = False
    for statement in module.body:
        if _makes_app(statement):
            has_app = True
        elif (kind := _kind(statement)) and has_app:
            number += 1
            cell, decorator = _cell(statement, kind, number, lines, strings)
            yield cell, _is_disabled(decorator)
        elif not _is_scaffold(statement):
            where = "; marimo needs `app = marimo.App()` at the top level" if not has_app else ""
            raise _error(f"this stands outside of every cell, where marimo does not run it{where}", lines, statement)


def _kind(statement: ast.stmt) -> str:
    """Which form a cell has: `cell`, `function`, `class_definition`, `setup` or `_unparsable_cell`; else nothing."""
    if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        names = [_of_app(decorator) for decorator in statement.decorator_list]
        return next((name for name in names if name in _DECORATORS), "")
    if isinstance(statement, (ast.With, ast.AsyncWith)):
        return "setup" if _of_app(statement.items[0].context_expr) == "setup" else ""
    unparsable = isinstance(statement, ast.Expr) and _of_app(statement.value) == "_unparsable_cell"
    return "_unparsable_cell" if unparsable else ""


def _of_app(node: ast.expr) -> str:
    """`cell` for `app.cell` and for `app.cell(...)`."""
    node = node.func if isinstance(node, ast.Call) else node
    is_app = isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "app"
    return node.attr if is_app and isinstance(node, ast.Attribute) else ""


def _makes_app(statement: ast.stmt) -> bool:
    value = statement.value if isinstance(statement, (ast.Assign, ast.AnnAssign)) else None
    return isinstance(value, ast.Call) and ast.unparse(value.func) == "marimo.App"


def _is_scaffold(statement: ast.stmt) -> bool:
    """True for what marimo itself writes around the cells."""
    if isinstance(statement, ast.If):
        return ast.unparse(statement.test) == "__name__ == '__main__'"
    if isinstance(statement, ast.Assign):
        return ast.unparse(statement.targets[0]) == "__generated_with"
    if isinstance(statement, ast.Import):
        return [alias.name for alias in statement.names] == ["marimo"]
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)


def _cell(
    statement: ast.stmt, kind: str, number: int, lines: Sequence[str], strings: Sequence[tuple[int, int]]
) -> tuple[Cell, ast.expr]:
    """A cell, and what makes it one."""
    if isinstance(statement, ast.Expr):  # app._unparsable_cell(r"""...""")
        call = statement.value
        constant = call.args[0] if isinstance(call, ast.Call) and call.args else None
        text = constant.value if isinstance(constant, ast.Constant) and isinstance(constant.value, str) else ""
        return _made(number, inspect.cleandoc(text), statement.lineno + 1, 4), call
    if isinstance(statement, (ast.With, ast.AsyncWith)):
        return _body(statement, number, lines, strings), statement.items[0].context_expr
    assert isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef))
    decorator = next(d for d in statement.decorator_list if _of_app(d) in _DECORATORS)
    if kind == "cell":
        return _body(statement, number, lines, strings), decorator
    first = (decorator.end_lineno or decorator.lineno) + 1
    source = "\n".join(lines[first - 1 : _end(statement, lines)])
    return _made(number, source, first), decorator


def _body(
    statement: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.With | ast.AsyncWith,
    number: int,
    lines: Sequence[str],
    strings: Sequence[tuple[int, int]],
) -> Cell:
    """The cell that a function's body is, without the `return` of its names and without its indentation."""
    code = list(statement.body)
    last = _end(statement, lines)
    if isinstance(code[-1], ast.Return):
        last = code.pop().lineno - 1
    if len(code) == 1 and (markdown := _markdown(code[0])) is not None:
        return Cell(number, "markdown", markdown)
    if not code or isinstance(code[-1], ast.Pass):
        last = min(last, code.pop().lineno - 1) if code else last
    first = _first_line(statement, lines)
    indent = statement.body[0].col_offset
    if first > statement.body[0].lineno:
        raise _error("a cell's code must begin on a line of its own", lines, statement)
    source = _dedented(lines, first, last, indent, strings)
    return _made(number, source, first, indent)


def _made(number: int, source: str, first: int, indent: int = 0) -> Cell:
    """A code cell whose source begins in a line of the file."""
    source = source.rstrip()
    return Cell(number, "code", source, tuple(range(first, first + source.count("\n") + 1)), indent)


def _first_line(statement: ast.stmt, lines: Sequence[str]) -> int:
    """The line below the header, which comments may stand on."""
    tokens = tokenize.generate_tokens(io.StringIO("\n".join(lines[statement.lineno - 1 :])).readline)
    return statement.lineno + next(token for token in tokens if token.type == tokenize.NEWLINE).end[0]


def _end(statement: ast.stmt, lines: Sequence[str]) -> int:
    """The last line of a block, with the comments that end it."""
    end = statement.end_lineno or statement.lineno
    for number in range(end + 1, len(lines) + 1):
        line = lines[number - 1]
        if line.strip() and not line[0].isspace():
            break
        end = number if line.strip() else end
    return end


def _markdown(statement: ast.stmt) -> str | None:
    """The text of `mo.md("...")`; None for anything else."""
    call = statement.value if isinstance(statement, ast.Expr) else None
    if not isinstance(call, ast.Call) or ast.unparse(call.func) not in ("mo.md", "marimo.md") or len(call.args) != 1:
        return None
    try:
        text = ast.literal_eval(call.args[0])
    except ValueError:  # an f-string: its text is known when it runs
        return None
    return inspect.cleandoc(text) if isinstance(text, str) else None


def _strings(lines: Sequence[str]) -> list[tuple[int, int]]:
    """The first and last line of each string of several lines."""
    spans, open_at = [], [0]
    starts, ends = getattr(tokenize, "FSTRING_START", -1), getattr(tokenize, "FSTRING_END", -1)
    for token in tokenize.generate_tokens(io.StringIO("\n".join(lines)).readline):
        if token.type == starts:  # Python 3.12 has tokens for the parts of an f-string
            open_at.append(token.start[0])
        elif token.type == ends:
            spans.append((open_at.pop(), token.end[0]))
        elif token.type == tokenize.STRING:
            spans.append((token.start[0], token.end[0]))
    return [(first, last) for first, last in spans if first < last]


def _dedented(lines: Sequence[str], first: int, last: int, indent: int, strings: Sequence[tuple[int, int]]) -> str:
    """Lines without their indentation: within a string too, unless a line of it has less, as marimo reads them."""
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


def _part(cell: Cell, is_disabled: bool) -> _Part:
    """A cell with the names that it defines for others, and those of other cells that it reads and deletes."""
    if cell.kind != "code":
        return _Part(cell)
    found = names(cell.source)
    local = frozenset(filter(_is_local, found.defines))
    return _Part(cell, found.defines - local, found.reads, found.deletes, local, local & found.late, is_disabled)


def _is_local(name: str) -> bool:
    """True for a name that marimo keeps within its cell."""
    return name.startswith("_") and not name.startswith("__")


def _check_local_names(parts: Sequence[_Part]) -> None:
    """Refuse functions that would read another cell's `_name` in a script, where marimo keeps one for each cell."""
    for part in parts:
        for name in sorted(part.kept):
            others = [other.cell.number for other in parts if name in other.local and other is not part]
            if others:
                message = (
                    f"cells {part.cell.number} and {others[0]} have a `{name}` of their own, which a function reads"
                )
                raise _cell_error(f"{message}: a script has one; rename one of them", part.cell)


def _in_order(parts: list[_Part]) -> list[Cell]:
    """The cells as marimo would run them: each after those whose names it reads, else in the order of the file."""
    code = {part.cell.number: part for part in parts if part.cell.kind == "code"}
    owners: dict[str, int] = {}
    for number, part in code.items():
        for name in sorted(part.defines):
            if name in owners:
                message = f"marimo would not run this notebook: cells {owners[name]} and {number} both define `{name}`"
                raise _cell_error(message, part.cell)
            owners[name] = number
    after = {n: {owners[name] for name in part.reads if owners.get(name, n) != n} for n, part in code.items()}
    for number, part in code.items():
        after[number].update(n for n, other in code.items() if n != number and part.deletes & other.reads)
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
    """The numbers of the cells, the smallest first of those whose predecessors have run."""
    waiting = {number: set(needed) for number, needed in after.items()}
    ready = [number for number, needed in waiting.items() if not needed]
    heapq.heapify(ready)
    while ready:
        number = heapq.heappop(ready)
        del waiting[number]
        yield number
        for other, needed in waiting.items():
            if number in needed:
                needed.remove(number)
                if not needed:
                    heapq.heappush(ready, other)
    if waiting:
        circle = ", ".join(map(str, sorted(waiting)))
        first = code[min(waiting)].cell
        said = f"marimo would not run this notebook: cells {circle} wait for each other's names; rename one"
        raise _cell_error(said, first)


def _error(message: str, lines: Sequence[str], statement: ast.stmt) -> NotebookError:
    error = NotebookError(message)
    error.file_line, error.line_text = statement.lineno, lines[statement.lineno - 1]
    return error


def _cell_error(message: str, cell: Cell) -> NotebookError:
    error = NotebookError(message)
    error.file_line, error.line_text = cell.lines[0], cell.source.split("\n")[0]
    return error
