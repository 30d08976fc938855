"""A notebook's code as one program: what rules look at."""

from __future__ import annotations

import ast
import bisect
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import libcst as cst

from nb2ddp.edits import Edit
from nb2ddp.installs import Installs
from nb2ddp.ipython import Kind, Syntax, mask
from nb2ddp.limits import excess
from nb2ddp.model import Location, NotebookError, Options, Severity
from nb2ddp.models import ModelKind, model_kind
from nb2ddp.notebook import Cell, Notebook
from nb2ddp.training import Training
from nb2ddp.tree import Statement, Tree, placeholder

_BOUND = re.compile(r"^[ \t]*(?:(\w+)[ \t]*=(?!=)|(?:def|class|import)[ \t]+(\w+)|from\b.*\bimport\b.*\b(\w+))", re.M)


@dataclass(frozen=True)
class Finding:
    """One place where a rule applies.

    Attributes:
        node: where it is.
        message: what was found, in one line.
        edits: how the script differs there; none for a finding that only reports.
        needs: parts of the setup block that the edits rely on (see `templates/setup.py.j2`).
        severity: None takes the rule's own.
        todo: leave `# TODO[nb2ddp] CODE: message` above the statement.
        fixed: the script no longer has the problem; None where that follows from the edits.
    """

    node: cst.CSTNode
    message: str
    edits: tuple[Edit, ...] = ()
    needs: frozenset[str] = frozenset()
    severity: Severity | None = None
    todo: bool = False
    fixed: bool | None = None


def _not_python(cell: int, source: str, error: cst.ParserSyntaxError) -> NotebookError:
    """Say what is wrong with a cell in Python's own words where it finds the same fault."""
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


class Program:
    """All code cells of a notebook, joined and parsed once.

    Args:
        notebook: the cells.
        options: what the conversion is to produce.

    Raises:
        NotebookError: a cell is not Python, with its place.
    """

    def __init__(self, notebook: Notebook, options: Options) -> None:
        self.notebook = notebook
        self.options = options
        self.forms: list[Syntax] = []
        self._cells: list[Cell] = []
        #: The offsets in the source at which code cells begin.
        self.cell_starts: list[int] = []
        masked = []
        bound = frozenset(
            name
            for cell in notebook.cells
            if cell.kind == "code"
            for names in _BOUND.findall(cell.source)
            for name in names
        )
        at = 0
        for cell in notebook.cells:
            if cell.kind != "code":
                continue
            result = mask(cell.source, len(self.forms), bound)
            self.forms += result.forms
            self._cells.append(cell)
            self.cell_starts.append(at)
            masked.append(result.source + "\n")
            at += len(masked[-1])
        for cell, source in zip(self._cells, masked, strict=True):
            if beyond := excess(source):
                raise NotebookError(
                    f"the cell is too complex to be read: {beyond[1]}", Location(cell.number, beyond[0], 1)
                )
        try:
            self.tree = Tree("".join(masked))
        except (cst.ParserSyntaxError, RecursionError):
            raise self._syntax_error(masked) from None

        self.training = Training(self.tree)
        self.installs = Installs(self)

    @cached_property
    def model_kind(self) -> ModelKind:
        """The kind of model the notebook trains."""
        return model_kind(self.tree)

    def _syntax_error(self, masked: list[str]) -> NotebookError:
        """Say which cell is not Python, and where."""
        for cell, source in zip(self._cells, masked, strict=True):
            try:
                cst.parse_module(source)
            except cst.ParserSyntaxError as error:
                return _not_python(cell.number, source, error)
            except RecursionError:
                return NotebookError("the cell nests too deeply to be read", Location(cell.number, 1, 1))
        return NotebookError("the cells are Python one by one, but not together")

    @property
    def code_cells(self) -> list[Cell]:
        """The code cells, in order."""
        return self._cells

    def last_statement(self, cell: Cell) -> cst.CSTNode | None:
        """The last statement of a cell that stands in no block, where nothing follows it on its line."""
        start, end = self.cell_span(cell.number)
        inside = [s for s in self.tree.module.body if start <= self.tree.start(s) < end]
        if not inside or not isinstance(inside[-1], cst.SimpleStatementLine):
            return None
        last = inside[-1].body[-1]
        return None if isinstance(last.semicolon, cst.Semicolon) else last

    def cell_span(self, number: int) -> tuple[int, int]:
        """Where a code cell lies in the source, its last line break included."""
        index = [cell.number for cell in self._cells].index(number)
        ends = [*self.cell_starts[1:], len(self.tree.source)]
        return self.cell_starts[index], ends[index]

    def cell_at(self, offset: int) -> Cell:
        """The cell that holds an offset."""
        return self._cells[bisect.bisect_right(self.cell_starts, offset) - 1]

    def location(self, node: cst.CSTNode) -> Location:
        """Where a node stands in the notebook."""
        offset = self.tree.start(node)
        index = bisect.bisect_right(self.cell_starts, offset) - 1
        line, column = self.tree.line_column(offset)
        first, _ = self.tree.line_column(self.cell_starts[index])
        return Location(self._cells[index].number, line - first + 1, column)

    def line_text(self, location: Location) -> str:
        """The notebook's own line at a place."""
        cell = next(cell for cell in self._cells if cell.number == location.cell)
        lines = cell.source.split("\n")
        return lines[location.line - 1] if location.line <= len(lines) else ""

    def form(self, node: cst.CSTNode) -> Syntax | None:
        """The IPython form that a call stands for."""
        number = placeholder(node)
        return None if number is None else self.forms[number]

    def forms_of(self, *kinds: Kind) -> Iterator[tuple[cst.Call, Syntax]]:
        """The IPython forms of some kinds, with the calls that stand for them, in order."""
        for call in self.tree.of(cst.Call):
            form = self.form(call)
            if form is not None and form.kind in kinds:
                yield call, form

    def alone(self, call: cst.Call) -> cst.Expr | None:
        """The statement that consists of a call and nothing else."""
        parent = self.tree.parents[call]
        return parent if isinstance(parent, cst.Expr) else None

    def runs_before_end(self, node: cst.CSTNode) -> bool:
        """True for code that runs up to the last training: there, or in a function that is used there."""
        function, seen = self.tree.function(node), set[cst.FunctionDef]()
        pending: list[tuple[cst.CSTNode, cst.FunctionDef | None]] = [(node, function)]
        while pending:
            place, function = pending.pop()
            if function is None:
                if self.training.is_before_end(place):
                    return True
            elif function not in seen:
                seen.add(function)
                pending += [(use, self.tree.function(use)) for use in self.uses_of(function)]
        return False

    def run_by(self, node: cst.CSTNode) -> list[Statement]:
        """The top-level statements before the end of training that run a node: around it, or calling its function."""
        function = self.tree.function(node)
        if function is None:
            return [self.tree.top_statement(node)]
        called: list[Statement] = []
        for call in self.calls_of(function):
            if self.tree.function(call) is not function:
                called += [top for top in self.run_by(call) if self.training.is_before_end(top) and top not in called]
        return called

    def calls_of(self, function: cst.FunctionDef) -> list[cst.Call]:
        """The live calls of a function of the notebook; none for a method, which its object's owner may call."""
        if isinstance(self.tree.scope(function), cst.ClassDef):
            return []
        uses = [(use, self.tree.parents[use]) for use in self.uses_of(function)]
        return [call for use, call in uses if isinstance(call, cst.Call) and call.func is use]

    def bound_for_later(self, statement: Statement) -> list[str]:
        """Names that are bound inside a statement and read outside it, in the same scope."""
        start, end = self.tree.span(statement)
        names = {n.value for n in self.tree.within(statement, cst.Name)}
        outside = [use for n in names for use in self.tree.loads(n) if not start <= self.tree.start(use) < end]
        bound = [(use, self.tree.binding(use)) for use in outside]
        return sorted({use.value for use, binding in bound if binding and start <= binding.offset < end})

    def uses_of(self, function: cst.FunctionDef) -> list[cst.CSTNode]:
        """Where live code names a function of the notebook: to call it, or to hand it on."""
        name = function.name.value
        if isinstance(self.tree.scope(function), cst.ClassDef):
            owner = cst.ensure_type(self.tree.scope(function), cst.ClassDef).name.value
            attributes = [a for a in self.tree.of(cst.Attribute) if a.attr.value == name]
            return [n for n in (*attributes, *self.tree.loads(owner)) if self.tree.is_live(n)]
        return [n for n in self.tree.loads(name) if self.tree.is_live(n)]

    def name(self, wanted: str) -> str:
        """A name for the setup block that the notebook does not use: `wanted`, or `wanted_`."""
        while wanted in self._taken:
            wanted += "_"
        return wanted

    @cached_property
    def _taken(self) -> frozenset[str]:
        return self.tree.bound_names
