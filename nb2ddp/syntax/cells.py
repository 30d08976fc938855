"""A notebook's code as one parsed source, mapped back to cells, lines and columns."""

from __future__ import annotations

import ast
import bisect
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import accumulate
from typing import TYPE_CHECKING

import libcst as cst

from nb2ddp.notebook.limits import excess
from nb2ddp.notebook.magics import PLACEHOLDER, Kind, Syntax, mask
from nb2ddp.results import Location, NotebookError
from nb2ddp.syntax.tree import Tree, head

if TYPE_CHECKING:
    from nb2ddp.notebook.ipynb import Cell, Notebook

#: A line that Python joins to the next one, but IPython does not.
_LONE_BACKSLASH = re.compile(r"^[ \t]*\\\n", re.M)
_BOUND = re.compile(r"^[ \t]*(?:(\w+)[ \t]*=(?!=)|(?:def|class|import)[ \t]+(\w+)|from\b.*\bimport\b.*\b(\w+))", re.M)


class Source:
    """All code cells of a notebook, joined and parsed once.

    Args:
        notebook: the cells.

    Attributes:
        code_cells: the code cells, in order.
        cell_starts: the offsets in the source at which they begin.

    Raises:
        NotebookError: some cells are not Python; the error has the place of each.
    """

    def __init__(self, notebook: Notebook) -> None:
        self.notebook = notebook
        self.forms: list[Syntax] = []
        self.code_cells = [cell for cell in notebook.cells if cell.kind == "code"]
        self._index = {cell.number: index for index, cell in enumerate(self.code_cells)}
        bindings = (names for cell in self.code_cells for names in _BOUND.findall(cell.source))
        self._bound = frozenset(name for names in bindings for name in names)
        masked, faults = [], []
        for cell in self.code_cells:
            try:
                masked.append(self._masked(cell))
            except NotebookError as error:
                masked.append("\n")
                faults.append(error)
        self.cell_starts = [0, *accumulate(map(len, masked))][:-1]
        tree = None if faults else _tree("".join(masked))
        if tree is not None:
            self.tree = tree
        if tree is None or self._run_on(masked):
            raise self._error(masked, faults)

    def _masked(self, cell: Cell) -> str:
        """Return a code cell with calls in place of IPython's forms.

        Raises:
            NotebookError: the cell is not Python, or too complex.
        """
        try:
            result = mask(cell.source, len(self.forms), self._bound)
        except SyntaxError as error:  # Python's tokenizer, which IPython uses, fails on the cell
            place = Location(cell.number, min(error.lineno or 1, cell.source.count("\n") + 1), 1)
            raise NotebookError(
                f"the cell is not Python: {error.msg}; correct it, or make it a Markdown cell", place
            ) from None
        if result.forms and (lone := _LONE_BACKSLASH.search(cell.source)):
            place = Location(cell.number, cell.source.count("\n", 0, lone.start()) + 1, 1)
            raise NotebookError("a line that is only a backslash stands before IPython syntax: take it out", place)
        if beyond := excess(result.source + "\n"):
            raise NotebookError(
                f"the cell is too complex to be read ({beyond[1]}): cut it into smaller pieces",
                Location(cell.number, beyond[0], 1),
            )
        self.forms += result.forms
        return result.source + "\n"

    def _run_on(self, masked: list[str]) -> bool:
        """Return whether a statement continues in the next cell, or a cell ends with a backslash."""
        for at in self.cell_starts[1:]:
            before = bisect.bisect_left(self._body_starts, at) - 1
            if before >= 0 and self.tree.span(self.tree.module.body[before])[1] > at:
                return True
        return any(source.rstrip().endswith("\\") and "#" not in source.rstrip().split("\n")[-1] for source in masked)

    def _error(self, masked: list[str], faults: list[NotebookError]) -> NotebookError:
        """Return an error with the known faults and with every other cell that is not Python."""
        errors = list(faults)
        for cell, source in zip(self.code_cells, masked, strict=True):
            try:
                Tree(source.rstrip())
            except cst.ParserSyntaxError as error:
                errors.append(_not_python(cell.number, source, error))
            except cst.CSTValidationError as error:  # a name in letters that this Python does not know yet
                errors.append(NotebookError(f"the cell is not Python: {error}", Location(cell.number, 1, 1)))
            except RecursionError:
                errors.append(NotebookError("the cell nests too deeply to be read", Location(cell.number, 1, 1)))
        if not errors:
            return NotebookError("the cells are Python one by one, but not together")
        return NotebookError.of(sorted((error.diagnostic for error in errors), key=lambda finding: finding.order))

    @cached_property
    def _body_starts(self) -> list[int]:
        """The offsets of the top-level statements."""
        return [self.tree.start(head(statement)) for statement in self.tree.module.body]

    def last_statement(self, cell: Cell) -> cst.CSTNode | None:
        """Return a cell's last top-level statement; None if it is compound or a semicolon follows it."""
        start, end = self.cell_span(cell.number)
        at = bisect.bisect_left(self._body_starts, end) - 1
        if at < 0 or self._body_starts[at] < start:
            return None
        statement = self.tree.module.body[at]
        if not isinstance(statement, cst.SimpleStatementLine):
            return None
        last = statement.body[-1]
        return None if isinstance(last.semicolon, cst.Semicolon) else last

    def lines_of(self, number: int) -> Sequence[cst.CSTNode]:
        """Return the top-level statements of a cell."""
        first, after = (bisect.bisect_left(self._body_starts, offset) for offset in self.cell_span(number))
        return self.tree.module.body[first:after]

    def cell_span(self, number: int) -> tuple[int, int]:
        """Return the span of a code cell in the source, with its last line break."""
        index = self._index[number]
        return self.cell_starts[index], [*self.cell_starts, len(self.tree.source)][index + 1]

    def cell_at(self, offset: int) -> Cell:
        """Return the cell that contains an offset."""
        return self.code_cells[bisect.bisect_right(self.cell_starts, offset) - 1]

    def location(self, node: cst.CSTNode) -> Location:
        """Return a node's place in the notebook."""
        offset = self.tree.start(node)
        index = bisect.bisect_right(self.cell_starts, offset) - 1
        line, column = self.tree.line_column(offset)
        first, _ = self.tree.line_column(self.cell_starts[index])
        place = Location(self.code_cells[index].number, line - first + 1, column)
        own = self.notebook.line_text(place)
        masked = self.tree.source[self.tree.line_start(offset) : self.tree.line_end(offset)]
        moved = len(own) - len(masked) if own.endswith(masked.lstrip()) else 0  # `%time` was removed before it
        return replace(place, column=column + moved)

    def form(self, node: cst.CSTNode) -> Syntax | None:
        """Return the IPython form that a call replaces; None for any other node."""
        return self._placed_forms[id(node)][1] if id(node) in self._placed_forms else None

    @cached_property
    def _placed_forms(self) -> dict[int, tuple[cst.Call, Syntax]]:
        """Every IPython form with the call that replaces it, in order, by the call's `id`."""
        calls = [c for c in self.tree.of(cst.Call) if isinstance(c.func, cst.Name) and c.func.value == PLACEHOLDER]
        return {id(call): (call, self.forms[int(self.tree.text(call.args[0].value))]) for call in calls}

    def forms_of(self, *kinds: Kind) -> Iterator[tuple[cst.Call, Syntax]]:
        """Return the IPython forms of some kinds, with the calls that replace them, in order."""
        return ((call, form) for call, form in self._placed_forms.values() if form.kind in kinds)

    def alone(self, call: cst.Call) -> cst.Expr | None:
        """Return the statement that consists only of a call; None if there is none."""
        parent = self.tree.parents[call]
        return parent if isinstance(parent, cst.Expr) else None

    def name(self, wanted: str) -> str:
        """Return a name for the setup block that the notebook does not bind: `wanted`, or else `wanted_`."""
        while wanted in self.tree.bound_names:
            wanted += "_"
        return wanted


def _tree(source: str) -> Tree | None:
    """Parse Python code; return None if it is not valid."""
    try:
        return Tree(source)
    except (cst.ParserSyntaxError, cst.CSTValidationError, RecursionError):
        return None


def _not_python(cell: int, source: str, error: cst.ParserSyntaxError) -> NotebookError:
    """Return the error of a cell that is not Python, with Python's message if Python rejects it too."""
    line, column, reason = error.raw_line, error.raw_column + 1, "LibCST cannot read it"
    try:
        ast.parse(source)
    except SyntaxError as own:
        line, column, reason = own.lineno or line, own.offset or column, own.msg
    except (ValueError, RecursionError) as own:
        reason = str(own)
    lines = source.split("\n")
    line = min(max(line, 1), len(lines))
    return NotebookError(
        f"the cell is not Python: {reason}; correct it, or make it a Markdown cell",
        Location(cell, line, max(column, 1)),
    )
