"""What rules look at: a notebook's source, and what is known of its training."""

from __future__ import annotations

from functools import cached_property

import libcst as cst

from nb2ddp.facts.installs import Installs
from nb2ddp.facts.loading import ModelKind, model_kind
from nb2ddp.facts.training import Training
from nb2ddp.notebook.ipynb import Notebook
from nb2ddp.options import Options
from nb2ddp.syntax.cells import Source
from nb2ddp.syntax.tree import Statement


class Program(Source):
    """A notebook's source with its trainings, its installs and its kind of model.

    Args:
        notebook: the cells.
        options: what the conversion is to produce.

    Raises:
        NotebookError: a cell is not Python, with its place.
    """

    def __init__(self, notebook: Notebook, options: Options) -> None:
        super().__init__(notebook)
        self.options = options
        self.training = Training(self.tree)
        self.installs = Installs(self)

    @cached_property
    def model_kind(self) -> ModelKind:
        """The kind of model the notebook trains."""
        return model_kind(self.tree, self.training.trainers)

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
        owner, name = self.tree.scope(function), function.name.value
        if not isinstance(owner, cst.ClassDef):
            calls = self.calls_of(function)
        elif name == "__init__":
            uses = [(use, self.tree.parents[use]) for use in self.tree.loads(owner.name.value)]
            calls = [call for use, call in uses if isinstance(call, cst.Call) and call.func is use]
        else:
            calls = self._method_calls(name)
        for call in calls:
            if self.tree.function(call) is not function:
                called += [top for top in self.run_by(call) if self.training.is_before_end(top) and top not in called]
        return called

    def _method_calls(self, name: str) -> list[cst.Call]:
        return [
            call
            for call in self.tree.of(cst.Call)
            if isinstance(call.func, cst.Attribute) and call.func.attr.value == name and self.tree.is_live(call)
        ]

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
