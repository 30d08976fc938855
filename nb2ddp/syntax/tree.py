"""Parse a whole notebook once, and answer the queries of rules on it.

The tree never changes: rules query it, and edits are applied later. Positions are offsets into the source. LibCST's
metadata providers need a pass each, and count lines and columns. `Walk` extends the state of LibCST's code generation,
which is private (`libcst/_nodes/internal.py`); `tests/syntax/test_walk.py` compares its results with the providers'.
"""

from __future__ import annotations

import bisect
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, wraps
from typing import Any, TypeVar, cast

import libcst as cst
from libcst._nodes.internal import CodegenState

Span = tuple[int, int]
Node = TypeVar("Node", bound=cst.CSTNode)
Statement = cst.SimpleStatementLine | cst.BaseCompoundStatement
#: Nodes with a body that runs when they are called.
Function = cst.FunctionDef | cst.Lambda
#: The classes of literals.
_LITERALS = frozenset({cst.SimpleString, cst.ConcatenatedString, cst.Integer, cst.Float})
_BLOCKS = (cst.If, cst.For, cst.While, cst.With, cst.Try, cst.TryStar, cst.Match)
#: The classes of `Statement`. LibCST's classes are abstract, for which a negative `isinstance` is slow.
_STATEMENTS = frozenset({cst.SimpleStatementLine, cst.FunctionDef, cst.ClassDef, *_BLOCKS})
#: For each class of node, the field with a name that is not a variable; empty if no name in the node is one.
_LABELS = {cst.Attribute: "attr", cst.Arg: "keyword", cst.AsName: "", cst.NameItem: ""}
_LABELS |= dict.fromkeys((cst.Param, cst.FunctionDef, cst.ClassDef), "name")
#: Methods that add items to a list.
ADDING = frozenset({"append", "extend", "insert"})
_IMPORTS = frozenset({cst.ImportAlias, cst.ImportFrom})
_CONSTANTS: dict[str, object] = {"True": True, "False": False, "None": None}
#: Escape sequences, and the characters that they represent.
_ESCAPE = re.compile(r"\\([\nnt\\'\"])")
_ESCAPED = {"\n": "", "n": "\n", "t": "\t", "\\": "\\", "'": "'", '"': '"'}


_COMPREHENSIONS = (cst.ListComp, cst.SetComp, cst.GeneratorExp, cst.DictComp)
#: Nodes that bind names to a value that they contain.
_VALUES = (cst.Assign, cst.AnnAssign, cst.AugAssign, cst.NamedExpr, cst.WithItem)
#: Nodes other than imports that bind names, with the field that contains the names.
_BINDING: dict[type[cst.CSTNode], str] = {
    cst.Assign: "targets",
    **dict.fromkeys((cst.AnnAssign, cst.NamedExpr, cst.AugAssign, cst.For, cst.CompFor), "target"),
    **dict.fromkeys((cst.FunctionDef, cst.ClassDef, cst.Param, cst.MatchAs, cst.MatchStar, cst.ExceptHandler), "name"),
    cst.WithItem: "asname",
}
SCOPES = frozenset({cst.Module, cst.FunctionDef, cst.ClassDef, cst.Lambda, *_COMPREHENSIONS})


#: Nodes that no query needs, nearly half of all nodes.
SPACE = frozenset({cst.SimpleWhitespace, cst.Newline})


class Walk(CodegenState):
    """A state of LibCST's code generation that records offsets instead of text, for all nodes except blanks.

    Args:
        module: a parsed module.

    Attributes:
        spans: start and end of each node's text, as `libcst.metadata.PositionProvider` defines them, by the node's
            `id`, which is faster than its hash.
        parents: the parent of each node, also by `id`; the module has none.
        by_type: the nodes of each class, in source order.
    """

    def __init__(self, module: cst.Module) -> None:
        super().__init__(module.default_indent, module.default_newline)
        self.spans: dict[int, Span] = {}
        self.parents: dict[int, Any] = {}
        self.by_type: dict[type[cst.CSTNode], list[Any]] = defaultdict(list)
        self.offset = 0
        self._indent = 0
        self._open: list[tuple[cst.CSTNode, int]] = []
        self._recorded = list[tuple[cst.CSTNode, cst.CSTNode | None, cst.CSTNode | None, int]]()
        module._codegen(self)

    def increase_indent(self, value: str) -> None:
        self.indent_tokens.append(value)
        self._indent += len(value)

    def decrease_indent(self) -> None:
        self._indent -= len(self.indent_tokens.pop())

    def add_indent_tokens(self) -> None:
        self.offset += self._indent

    def add_token(self, value: str) -> None:
        self.offset += len(value)

    def before_codegen(self, node: cst.CSTNode) -> None:
        kind = type(node)
        if kind in SPACE:
            return
        if self._open:
            self.parents[id(node)] = self._open[-1][0]
        self._open.append((node, self.offset))
        self.by_type[kind].append(node)

    def after_codegen(self, node: cst.CSTNode) -> None:
        if type(node) in SPACE:
            return
        _, start = self._open.pop()
        self.spans.setdefault(id(node), (start, self.offset))  # unless the node has recorded its own span

    def record_syntactic_position(  # type: ignore[override]  # a generator takes three times as long
        self, node: cst.CSTNode, *, start_node: cst.CSTNode | None = None, end_node: cst.CSTNode | None = None
    ) -> Walk:
        """Record a node's span without the space around it; other nodes may give its start and its end."""
        self._recorded.append((node, start_node, end_node, self.offset))
        return self

    def __enter__(self) -> None:
        """Begin the node that was recorded last."""

    def __exit__(self, error: object, *_: object) -> None:
        node, start_node, end_node, start = self._recorded.pop()
        if error is None:
            start = start if start_node is None else self.spans[id(start_node)][0]
            end = self.offset if end_node is None else self.spans[id(end_node)][1]
            self.spans[id(node)] = start, end


class Regions:
    """Parts of a source by their offsets; of nested parts, only the outermost."""

    def __init__(self, spans: Iterable[Span]) -> None:
        self._starts: list[int] = []
        self._ends: list[int] = []
        for start, end in sorted(spans, key=lambda span: (span[0], -span[1])):
            if not self._ends or start >= self._ends[-1]:
                self._starts.append(start)
                self._ends.append(end)

    def __contains__(self, offset: int) -> bool:
        at = bisect.bisect_right(self._starts, offset) - 1
        return at >= 0 and offset < self._ends[at]


@dataclass(frozen=True)
class Binding:
    """A name that a scope binds.

    Attributes:
        offset: where it takes effect: after the bound value, which still sees the previous binding.
        node: the statement or element that binds it.
        imported: the full dotted name, if an import binds it.
        value: the bound value, if an assignment to a single name binds it.
    """

    offset: int
    node: cst.CSTNode
    imported: str | None = None
    value: cst.BaseExpression | None = None


class Bindings:
    """Every binding of a source.

    Args:
        walk: the source's nodes, with their places and parents.

    Attributes:
        by_scope: the names of each scope, each with its bindings in order.
        star_imports: the modules of `from module import *`.
        stores: the name nodes that are bound, and so not read.
    """

    def __init__(self, walk: Walk) -> None:
        self._walk = walk
        self.by_scope: dict[cst.CSTNode, dict[str, list[Binding]]] = defaultdict(lambda: defaultdict(list))
        self.star_imports: list[str] = []
        self.stores: set[cst.CSTNode] = set()
        (self._module,) = walk.by_type[cst.Module]
        self._globals: dict[cst.CSTNode, set[str]] = defaultdict(set)
        for statement in walk.by_type[cst.Global]:
            self._globals[self._scope(statement)].update(item.name.value for item in statement.names)
        for kind, field in _BINDING.items():
            for node in walk.by_type.get(kind, ()):
                bound = getattr(node, field)
                for target in [assigned.target for assigned in bound] if kind is cst.Assign else [bound]:
                    self._bind(target, node)
        for alias in walk.by_type.get(cst.ImportAlias, ()):
            self._import(alias)
        for statement in walk.by_type.get(cst.ImportFrom, ()):
            if isinstance(statement.names, cst.ImportStar):
                self.star_imports.append(_module(statement))
        for names_of in self.by_scope.values():
            for bindings in names_of.values():
                bindings.sort(key=lambda binding: binding.offset)

    def _bind(self, target: cst.CSTNode | None, node: cst.CSTNode) -> None:
        is_plain = isinstance(target, cst.Name) and isinstance(node, (cst.Assign, cst.AnnAssign, cst.NamedExpr))
        value = getattr(node, "value", None) if is_plain else None
        for name in plain_names(target):
            if not isinstance(node, cst.AugAssign):
                self.stores.add(name)
            self._add(name.value, Binding(self._in_effect(node), node, value=value))

    def _import(self, alias: cst.ImportAlias) -> None:
        node, full = self._walk.parents[id(alias)], dotted(alias.name)
        if isinstance(node, cst.ImportFrom):
            full = f"{_module(node)}.{full}"
        elif alias.asname is None:
            full = full.split(".")[0]  # `import a.b` binds a
        name = full.rsplit(".", 1)[-1] if alias.asname is None else dotted(alias.asname.name)
        self._add(name, Binding(self._in_effect(alias), node, imported=full))

    def _add(self, name: str, binding: Binding) -> None:
        scope = self._scope(binding.node)
        self.by_scope[self._module if name in self._globals[scope] else scope][name].append(binding)

    def _scope(self, node: cst.CSTNode) -> cst.CSTNode:
        parents = self._walk.parents
        node = parents[id(node)]
        while type(node) not in SCOPES:
            node = parents[id(node)]
        return node

    def _in_effect(self, node: cst.CSTNode) -> int:
        """Return the offset at which the bindings of a node take effect."""
        if isinstance(node, (cst.For, cst.FunctionDef, cst.ClassDef)):
            return self._walk.spans[id(node.body)][0] - 1
        start, end = self._walk.spans[id(node)]
        return end - 1 if isinstance(node, _VALUES) else start


Owner = TypeVar("Owner")
Asked = TypeVar("Asked")
Answer = TypeVar("Answer")


def remembered(method: Callable[[Owner, Asked], Answer]) -> Callable[[Owner, Asked], Answer]:
    """Cache the results of a method by the `id` of its argument, which must stay alive."""
    name = f"_{method.__name__}_by_id"

    @wraps(method)
    def answer(self: Owner, asked: Asked) -> Answer:
        try:
            found: Answer = self.__dict__[name][id(asked)]
        except KeyError:
            found = self.__dict__.setdefault(name, {})[id(asked)] = method(self, asked)
        return found

    return answer


class Parents:
    """The parent of each node of a tree; the module has none."""

    def __init__(self, by_id: dict[int, cst.CSTNode]) -> None:
        self._by_id = by_id

    def __getitem__(self, node: cst.CSTNode) -> cst.CSTNode:
        return self._by_id[id(node)]


class Tree:
    """A parsed source with parents, spans, bindings and live code.

    Args:
        source: Python code, with IPython forms already masked.

    Attributes:
        star_imports: the modules of `from module import *`, whose names are unknown.

    Raises:
        libcst.ParserSyntaxError: the source is not Python.
    """

    def __init__(self, source: str) -> None:
        self.source = source
        self.module = cst.parse_module(source)
        walk = Walk(self.module)
        self._parents = walk.parents
        self.parents = Parents(walk.parents)
        self._spans = walk.spans
        self._spans[id(self.module)] = 0, len(source)
        self._by_type = walk.by_type
        bindings = Bindings(walk)
        self._bindings = bindings.by_scope
        self.star_imports = bindings.star_imports
        self._stores = bindings.stores
        self._line_starts = [0, *(match.end() for match in re.finditer("\n", source))]

    # -- places ---------------------------------------------------------------------------------------------

    def span(self, node: cst.CSTNode) -> tuple[int, int]:
        """Return the start and end offset of a node's text, without the space around it."""
        return self._spans[id(node)]

    def start(self, node: cst.CSTNode) -> int:
        """Return the offset of a node's first character."""
        return self._spans[id(node)][0]

    def text(self, node: cst.CSTNode) -> str:
        """Return a node's text, as written."""
        start, end = self.span(node)
        return self.source[start:end]

    def line_column(self, offset: int) -> tuple[int, int]:
        """Return the line and column of an offset, both from 1."""
        line = bisect.bisect_right(self._line_starts, offset)
        return line, offset - self._line_starts[line - 1] + 1

    def line_start(self, offset: int) -> int:
        """Return the offset of the first character of the line that contains `offset`."""
        return self._line_starts[bisect.bisect_right(self._line_starts, offset) - 1]

    def line_end(self, offset: int) -> int:
        """Return the offset of the line break (or the end of the source) that ends the line of `offset`."""
        end = self.source.find("\n", offset)
        return len(self.source) if end < 0 else end

    def indentation(self, node: cst.CSTNode) -> str:
        """Return the text before a node on its line."""
        return self.source[self.line_start(self.start(node)) : self.start(node)]

    def comments_above(self, statement: cst.CSTNode) -> int:
        """Return where the comments begin that are right above a statement, at its indentation."""
        start, indent = self.line_start(self.start(statement)), self.indentation(statement)
        while start and (above := self.source[self.line_start(start - 1) : start]).startswith(f"{indent}#"):
            start -= len(above)
        return start

    def in_order(self, nodes: Iterable[Node]) -> list[Node]:
        """Sort nodes by their start, each before the nodes inside it: the order does not depend on the input's."""
        return sorted(nodes, key=lambda node: (self.start(node), self._number[id(node)]))

    @cached_property
    def _number(self) -> dict[int, int]:
        """The number of each node in the pass over the source, which visits a node before its children."""
        return {node: number for number, node in enumerate([id(self.module), *self._parents])}

    # -- structure ------------------------------------------------------------------------------------------

    def of(self, kind: type[Node]) -> Sequence[Node]:
        """Return every node of one class, in source order."""
        return self._by_type.get(kind, [])

    def within(self, node: cst.CSTNode, kind: type[Node]) -> list[Node]:
        """Return every node of one class inside a node (itself included), in order."""
        spans, (starts, nodes) = self._spans, self._sorted(kind)
        start, end = spans[id(node)]
        found = nodes[bisect.bisect_left(starts, start) : bisect.bisect_left(starts, end)]
        return [each for each in found if spans[id(each)][1] <= end]  # `f(x)` starts where `f` does

    @remembered
    def _sorted(self, kind: type[cst.CSTNode]) -> tuple[list[int], list[Any]]:
        """Return the sorted offsets of all nodes of one class, and the nodes in that order."""
        nodes = sorted(self.of(kind), key=self.start)
        return [self.start(node) for node in nodes], nodes

    def ancestors(self, node: cst.CSTNode) -> Iterator[cst.CSTNode]:
        """Yield a node's parent, its parent's parent, and so on up to the module."""
        parents = self._parents
        while (parent := parents.get(id(node))) is not None:
            yield parent
            node = parent

    def statement(self, node: cst.CSTNode) -> Statement:
        """Return the innermost whole statement (line) that contains a node."""
        while type(node) not in _STATEMENTS:
            node = self._parents[id(node)]
        return cast(Statement, node)

    def top_statement(self, node: cst.CSTNode) -> Statement:
        """Return the module-level statement that contains a node."""
        return cast(Statement, [node, *self.ancestors(node)][-2])

    def scope(self, node: cst.CSTNode) -> cst.CSTNode:
        """Return the function, class, lambda, comprehension or module whose names a node sees first."""
        parents, above = self._parents, self._parents.get(id(node))
        while above is not None and type(above) not in SCOPES:
            above = parents.get(id(above))
        return self.module if above is None else above

    def function(self, node: cst.CSTNode) -> cst.FunctionDef | None:
        """Return the innermost function definition around a node."""
        return self.around(node, cst.FunctionDef)

    def enclosing_function(self, node: cst.CSTNode) -> Function | None:
        """Return the innermost function or lambda around a node."""
        return cast("Function | None", self.around(node, cst.FunctionDef, cst.Lambda))

    def around(self, node: cst.CSTNode, *kinds: type[Node]) -> Node | None:
        """Return the innermost node of some classes around a node."""
        parents, above = self._parents, self._parents.get(id(node))
        while above is not None and type(above) not in kinds:
            above = parents.get(id(above))
        return above

    def extended(self, node: cst.CSTNode, *kinds: type[cst.BaseExpression]) -> cst.CSTNode:
        """Return the longest chain of attributes, items or calls that begins with a node: `a.b[0]` for `a`."""
        while isinstance(above := self.parents[node], kinds):
            node = above
        return node

    def inside_statement(self, node: cst.CSTNode) -> Iterator[cst.CSTNode]:
        """Yield the ancestors of a node inside its statement, without the statement."""
        for above in self.ancestors(node):
            if isinstance(above, (cst.BaseSmallStatement, cst.BaseCompoundStatement)):
                return
            yield above

    def imports(self, *packages: str) -> Iterator[tuple[cst.Import | cst.ImportFrom, str, str]]:
        """Yield each import of some packages, with its module, and a statement for the other modules that it imports.

        The statement is empty if there are no others.
        """
        if self._packages.isdisjoint(package.partition(".")[0] for package in packages):
            return
        begins = tuple(f"{package}." for package in packages)

        def is_one(name: str) -> bool:
            return f"{name}.".startswith(begins)

        for line in self.of(cst.ImportFrom):
            module = dotted(line.module) if line.module is not None else ""
            names = () if isinstance(line.names, cst.ImportStar) else line.names
            if is_one(module) or (names and all(is_one(f"{module}.{alias.evaluated_name}") for alias in names)):
                yield line, module, ""
        for statement in self.of(cst.Import):
            named = [alias.evaluated_name for alias in statement.names if is_one(alias.evaluated_name)]
            if named:
                kept = [self.text(alias).rstrip(", ") for alias in statement.names if alias.evaluated_name not in named]
                yield statement, named[0], f"import {', '.join(kept)}" if kept else ""

    @cached_property
    def _packages(self) -> frozenset[str]:
        """The packages that the source imports from."""
        modules = [line.module for line in self.of(cst.ImportFrom)] + [alias.name for alias in self.of(cst.ImportAlias)]
        return frozenset(dotted(module).partition(".")[0] for module in modules if module is not None)

    @remembered
    def texts(self, node: cst.CSTNode) -> Sequence[str]:
        """Return the texts of the strings inside a node, in order; of an f-string, the parts outside its braces."""
        strings = [*self.within(node, cst.SimpleString), *self.within(node, cst.FormattedStringText)]
        return [self.content(part) for part in sorted(strings, key=self.start)]  # type: ignore[arg-type]

    def content(self, string: cst.SimpleString | cst.FormattedStringText) -> str:
        """Return the text of a plain string, or of a part of an f-string outside its braces."""
        if isinstance(string, cst.SimpleString):
            return str(self._constant(string))
        formatted = cst.ensure_type(self.around(string, cst.FormattedString), cst.FormattedString)
        is_raw = "r" in formatted.start.lower()
        return self.text(string) if is_raw else _ESCAPE.sub(lambda found: _ESCAPED[found[1]], self.text(string))

    @remembered
    def _constant(self, node: cst.BaseExpression) -> object:
        """Return the value of a constant, for which LibCST would compile the text at each request."""
        if isinstance(node, cst.SimpleString) and not node.prefix and "\\" not in node.value:
            return node.raw_value
        return node.evaluated_value  # type: ignore[attr-defined]

    def given(self, name: str) -> list[cst.BaseExpression]:
        """Return the values that live calls pass under a keyword, in order."""
        return self._given.get(name, [])

    @cached_property
    def _given(self) -> dict[str, list[cst.BaseExpression]]:
        named = (argument for argument in self.live(cst.Arg) if argument.keyword is not None)
        return grouped((cast(cst.Name, argument.keyword).value, argument.value) for argument in named)

    def is_live(self, node: cst.CSTNode) -> bool:
        """Return whether a node may run: False inside `if False:` and similar blocks."""
        return self.start(node) not in self._dead

    @remembered
    def live(self, kind: type[Node]) -> Sequence[Node]:
        """Return every live node of one class, in source order."""
        return [node for node in self.of(kind) if self.is_live(node)]

    @cached_property
    def _dead(self) -> Regions:
        """The bodies that never run."""
        nodes: list[cst.If | cst.While] = [*self.of(cst.If), *self.of(cst.While)]
        never = (node.body for node in nodes if getattr(node.test, "value", None) in ("False", "0"))
        return Regions(map(self.span, never))

    def is_ruled_out(self, node: cst.CSTNode) -> bool:
        """Return whether a constant, `F = False`, rules out a node's branch: `if F:`, or `b` in `a if not F else b`.

        Such code is converted all the same: a user may change the constant, in the script too.
        """
        part = node
        for above in self.ancestors(node):
            if isinstance(above, (cst.If, cst.IfExp)) and part is not above.test:
                asked = above.test
                if isinstance(asked, cst.UnaryOperation) and isinstance(asked.operator, cst.Not):
                    asked = asked.expression
                test = self.fixed(asked)
                holds = bool(test) is (asked is above.test)
                if test is not ... and part is (above.orelse if holds else above.body):
                    return True
            part = above
        return False

    # -- functions ------------------------------------------------------------------------------------------

    def named(self, function: cst.FunctionDef) -> list[cst.CSTNode]:
        """Return where live code names a function: a method by its name, `__init__` and the like by their class."""
        owner, name = self.scope(function), function.name.value
        if isinstance(owner, cst.ClassDef) and not name.startswith("__"):
            return [node for node in self.attributes(name) if self.is_live(node)]
        named = self.loads(owner.name.value if isinstance(owner, cst.ClassDef) else name)
        return [node for node in named if self.is_live(node)]

    @remembered
    def uses(self, function: cst.FunctionDef) -> list[cst.CSTNode]:
        """Return where a function may be called from: where it is named and, for a method, where its class is named."""
        owner, places = self.scope(function), self.named(function)
        if not isinstance(owner, cst.ClassDef) or function.name.value.startswith("__"):
            return places
        return [*places, *(node for node in self.loads(owner.name.value) if self.is_live(node))]

    def methods(self, owner: cst.ClassDef) -> list[cst.FunctionDef]:
        """Return the methods of a class, except `__init__`."""
        functions = self.within(owner, cst.FunctionDef)
        return [method for method in functions if self.scope(method) is owner and method.name.value != "__init__"]

    def calls_of(self, function: cst.FunctionDef) -> list[cst.Call]:
        """Return the live calls of a function by its name; none for a method, which other code may call."""
        if isinstance(self.scope(function), cst.ClassDef):
            return []
        return self.callers(function)

    def run_from(
        self, node: cst.CSTNode, uses: Callable[[cst.FunctionDef], Iterable[cst.CSTNode]]
    ) -> list[cst.CSTNode]:
        """Return the places outside functions that run a node: itself or, transitively, the uses of its function.

        Args:
            node: the node to run.
            uses: returns the nodes that count as uses of a function.
        """
        places, pending, seen = list[cst.CSTNode](), [node], set[cst.FunctionDef]()
        for place in pending:  # a worklist
            function = self.function(place)
            if function is None:
                places.append(place)
            elif function not in seen:
                seen.add(function)
                pending += uses(function)
        return places

    def call_of(self, node: cst.CSTNode) -> cst.Call | None:
        """Return the call whose function is a name or an attribute; None if it is not called."""
        parent = self.parents[node]
        return parent if isinstance(parent, cst.Call) and parent.func is node else None

    def callers(self, function: cst.FunctionDef) -> list[cst.Call]:
        """Return the live calls of a function: of a method by its name alone, of `__init__` those of its class."""
        return [call for use in self.named(function) if (call := self.call_of(use)) is not None]

    # -- names ----------------------------------------------------------------------------------------------

    def bindings(self, name: str, node: cst.CSTNode | None = None) -> list[Binding]:
        """Return every binding of a name at module level, or in the scope of a node, in order."""
        return self._bindings[self.module if node is None else self.scope(node)].get(name, [])

    def targets(self, node: cst.CSTNode) -> list[cst.BaseExpression]:
        """Return the targets of the assignments in a node: names, attributes, items."""
        bound: list[cst.AssignTarget | cst.AugAssign | cst.AnnAssign] = [*self.within(node, cst.AssignTarget)]
        bound += [*self.within(node, cst.AugAssign), *self.within(node, cst.AnnAssign)]
        return [part.target for part in bound]

    def setting(self, name: str) -> list[cst.Assign]:
        """Return the assignments that set an attribute with this name, of any object: `x.name = 1`."""
        targets = [self.parents[attribute] for attribute in self.attributes(name)]
        return [cst.ensure_type(self.parents[n], cst.Assign) for n in targets if isinstance(n, cst.AssignTarget)]

    def binds(self, statement: cst.CSTNode) -> list[str]:
        """Return the names that a statement binds in its scope, each once."""
        (start, end), places = self.span(statement), self._places(self.scope(statement))
        inside = places[bisect.bisect_left(places, (start,)) : bisect.bisect_left(places, (end,))]
        return list(dict.fromkeys(name for _, name in sorted(place[1:] for place in inside)))

    @remembered
    def _places(self, scope: cst.CSTNode) -> list[tuple[int, int, str]]:
        """Return the offsets at which a scope binds names, each with the name's number and the name."""
        names = enumerate(self._bindings[scope].items())
        return sorted((binding.offset, at, name) for at, (name, bindings) in names for binding in bindings)

    @cached_property
    def bound_names(self) -> frozenset[str]:
        """Every name bound anywhere in the source."""
        return frozenset(name for names in self._bindings.values() for name in names)

    @remembered
    def binding(self, node: cst.CSTNode) -> Binding | None:
        """Return the binding in effect where a name is used; None for a builtin, and for a node that is not a name."""
        return self.bound(node.value, node) if type(node) is cst.Name else None

    def definition(self, node: cst.CSTNode) -> cst.CSTNode | None:
        """Return the node that binds a name where it is used: a statement, a definition, a parameter; see `binding`."""
        binding = self.binding(node)
        return None if binding is None else binding.node

    def bound_uses(self, node: cst.CSTNode) -> list[cst.Name]:
        """Return the uses of names that have, or may have, the value that a statement or an item of a `with` binds."""
        uses = [use for name in self.binds(node) for use in self.loads(name)]
        return [use for use in uses if (by := self.definition(use)) is node or self._is_branched(use, by, node)]

    def _is_branched(self, use: cst.CSTNode, by: cst.CSTNode | None, other: cst.CSTNode) -> bool:
        """Return whether a name's binding node and another are in two branches of one `if` or `try` before its use."""
        if by is None:
            return False
        above = {*self.ancestors(by)}
        common = next(each for each in self.ancestors(other) if each in above)
        return isinstance(common, (cst.If, cst.Try)) and common not in {*self.ancestors(use)}

    def kept_uses(self, node: cst.CSTNode) -> list[cst.CSTNode]:
        """Return the uses of the targets that a statement binds, names or attributes (`Settings.llm`)."""
        kept = [target for target in self.targets(node) if isinstance(target, cst.Attribute)]
        same = [other for target in kept for other in self.attributes(target.attr.value) if other not in kept]
        return [*self.bound_uses(node), *(other for other in same if self.text(other) in map(self.text, kept))]

    def bound(self, name: str, place: cst.CSTNode) -> Binding | None:
        """Return the binding of a name that would be in effect at a node; see `binding`."""
        offset, live, scope = self.start(place), self.is_live(place), self.scope(place)
        own = True  # only the class body itself sees its names
        while True:
            visible = own or not isinstance(scope, cst.ClassDef)
            bindings = self._bindings[scope].get(name, []) if visible else []
            for at in reversed(range(bisect.bisect_left(bindings, offset, key=lambda b: b.offset))):
                if not live or bindings[at].offset not in self._dead:
                    return bindings[at]
            if not (own and scope is self.module):
                for later in bindings:
                    if not live or later.offset not in self._dead:
                        return later  # a function's free name, bound by the time it is called
            if scope is self.module:
                return None
            own = own and not isinstance(scope, (cst.FunctionDef, cst.Lambda))
            scope = self.scope(scope)

    def bound_at(self, place: cst.CSTNode) -> Callable[[str], bool]:
        """Return a function that tests whether a name is bound at a node."""
        return lambda name: self.bound(name, place) is not None

    @remembered
    def qualified(self, node: cst.CSTNode) -> str:
        """Return the full dotted name that an expression resolves to, through imports and plain aliases.

        `Cfg` is `trl.SFTConfig` after `from trl import SFTConfig as Cfg`. A name the notebook binds to
        anything else is `.name`; an unknown or builtin name is itself; no name at all is the empty string.
        """
        return self._qualify(node, 8)

    def _qualify(self, node: cst.CSTNode, depth: int) -> str:
        if type(node) is cst.Attribute:
            base = self._qualify(node.value, depth)
            return f"{base}.{node.attr.value}" if base else ""
        if type(node) is not cst.Name:
            return ""
        binding = self.binding(node)
        if binding is None:
            return f"{self.star_imports[0]}.{node.value}" if len(self.star_imports) == 1 else node.value
        if binding.imported is not None:
            return binding.imported
        followed = self._qualify(binding.value, depth - 1) if binding.value is not None and depth else ""
        return followed or f".{node.value}"

    @remembered
    def family(self, node: cst.CSTNode) -> str:
        """Return the `qualified` name; for a class defined in the notebook, the family of its first base."""
        return self.qualified(self.bases(node)[-1])

    def bases(self, node: cst.CSTNode) -> list[cst.CSTNode]:
        """Return a class, and transitively the first base of each class that the notebook defines."""
        return self.followed(node, self._base)

    def _base(self, node: cst.CSTNode) -> cst.CSTNode | None:
        """Return the first base of a class that the notebook defines, or the name that another name is bound to."""
        binding = self.binding(node)
        if binding is not None and isinstance(binding.node, cst.ClassDef) and binding.node.bases:
            return binding.node.bases[0].value
        return binding.value if binding is not None and isinstance(binding.value, cst.Name) else None

    def class_name(self, node: cst.CSTNode) -> str:
        """Return the name of a class without its module; for a class defined in the notebook, its library base's."""
        return self.family(node).rsplit(".", 1)[-1]

    def member(self, node: cst.CSTNode) -> tuple[cst.BaseExpression, object] | None:
        """Return the object and the name of an attribute: `a` and `"b"` of `a.b`, and of `getattr(a, "b")`."""
        if isinstance(node, cst.Attribute):
            return node.value, node.attr.value
        if isinstance(node, cst.Call) and self.qualified(node.func) == "getattr" and len(node.args) > 1:
            return node.args[0].value, self.literal(node.args[1].value)
        return None

    def constructor(self, node: cst.BaseExpression) -> str:
        """Return the full name of the call that makes an object, in an assignment or a `with`; empty if none does."""
        bound = self.definition(node)
        maker = bound.item if isinstance(bound, cst.WithItem) else self.value(node)
        return self.qualified(maker.func) if isinstance(maker, cst.Call) else ""

    def value(self, node: cst.BaseExpression, depth: int = 8) -> cst.BaseExpression:
        """Return the expression that a plain name was last bound to, followed through names; else the node itself."""
        while type(node) is cst.Name and depth and (binding := self.binding(node)) and binding.value is not None:
            node, depth = binding.value, depth - 1
        return node

    def backward_slice(self, node: cst.CSTNode) -> list[cst.CSTNode]:
        """Return the backward slice of an expression: itself and, transitively, the sources of its names, each once.

        A name is followed through assignments, `with ... as` and loops, to the value that they bind or iterate over.
        """
        parts = dict.fromkeys([node])
        pending = [node]
        for part in pending:  # a worklist
            bindings = map(self.binding, self.within(part, cst.Name))
            sources = [source for binding in bindings if binding and (source := _source(binding)) is not None]
            pending += [source for source in dict.fromkeys(sources) if source not in parts]
            parts.update(dict.fromkeys(sources))
        return pending

    @staticmethod
    def followed(node: Node, onward: Callable[[Node], Node | None]) -> list[Node]:
        """Return a node, the node that `onward` returns for it, the next one for that, and so on, each once."""
        chain = [node]
        for link in chain:  # a worklist
            if (above := onward(link)) is not None and above not in chain:
                chain.append(above)
        return chain

    def sinks(self, node: cst.CSTNode) -> list[cst.CSTNode]:
        """Return where a value ends up: the node itself, or the uses of the name that an assignment binds to it.

        Values that are computed from it and bound to a name are followed too. The list is empty if the value only goes
        to names that nothing reads.
        """
        ends, pending = list[cst.CSTNode](), [node]
        for place in pending:  # a worklist
            assign = self.around(place, cst.Assign)
            if assign is not None and len(assign.targets) == 1 and isinstance(assign.targets[0].target, cst.Name):
                pending += [use for use in self.bound_uses(assign) if use not in pending]
            else:
                ends.append(place)
        return ends

    def literal(self, node: cst.BaseExpression) -> object:
        """Return the constant that an expression resolves to (a string, a number, True, False, None), or `...`."""
        node = self.value(node)
        if type(node) is cst.Name:
            return _CONSTANTS.get(node.value, ...)
        value = self._constant(node) if type(node) in _LITERALS else None
        return ... if value is None else value

    def fixed(self, node: cst.BaseExpression) -> object:
        """Return the constant that a value resolves to, or `...`: a name that is bound twice may depend on the GPU."""
        bound = self.definition(node)
        is_bound_once = bound is None or len(self.bindings(self.text(node), bound)) == 1
        return self.literal(node) if is_bound_once else ...

    def is_bound_for_later(self, statement: Statement) -> bool:
        """Return whether a statement binds a name that is read outside it."""
        start, end = self.span(statement)
        offsets = self._reads[0]
        first, last = bisect.bisect_left(offsets, start), bisect.bisect_left(offsets, end)
        return any(not (start <= low and high < end) for low, high in self._reads[1][first:last])

    @cached_property
    def _reads(self) -> tuple[list[int], list[tuple[int, int]]]:
        """The offsets of bindings, and for each the first and last offset at which it is read."""
        reads: dict[int, tuple[int, int]] = {}
        for uses in self._loads.values():
            for use in uses:
                if (binding := self.binding(use)) is not None:
                    at = self.start(use)
                    low, high = reads.get(binding.offset, (at, at))
                    reads[binding.offset] = min(low, at), max(high, at)
        offsets = sorted(reads)
        return offsets, [reads[offset] for offset in offsets]

    def readers(self, name: str, node: cst.CSTNode) -> list[cst.Name]:
        """Return the uses of a module-level name that may see its binding by a statement, or by a part of one.

        This excludes uses above it outside functions, uses below another module-level line that binds the name, and
        uses of a function's local name.
        """
        everywhere, start = self.bindings(name), self.start(node)
        end = self.span(node)[1]
        after = [other.offset for other in everywhere if other.offset >= end and self.is_top_level(other.node)]
        return [
            use
            for use in self.loads(name)
            if (not after or self.start(use) < after[0])
            and (self.start(use) > start or self.scope(use) is not self.module)
            and ((binding := self.binding(use)) is None or binding in everywhere)
        ]

    def is_top_level(self, node: cst.CSTNode) -> bool:
        """Return whether a node is in no block and no function, and so runs once."""
        return self.parents[self.statement(node)] is self.module

    @property
    def names_read(self) -> list[str]:
        """Every name that some code reads."""
        return list(self._loads)

    def loads(self, name: str) -> list[cst.Name]:
        """Return every use (not binding) of a name, in order."""
        return self._loads.get(name, [])

    def attributes(self, name: str) -> list[cst.Attribute]:
        """Return every attribute with this name, of any object, in order."""
        return self._attributes.get(name, [])

    @cached_property
    def _attributes(self) -> dict[str, list[cst.Attribute]]:
        return grouped((node.attr.value, node) for node in self.of(cst.Attribute))

    @cached_property
    def _loads(self) -> dict[str, list[cst.Name]]:
        return grouped((name.value, name) for name in self.of(cst.Name) if self._is_read(name))

    def _is_read(self, name: cst.Name) -> bool:
        parent = self.parents[name]
        if name in self._stores or _is_label(name, parent):
            return False
        while type(parent) is cst.Attribute:
            parent = self.parents[parent]
        return type(parent) not in _IMPORTS


def grouped(pairs: Iterable[tuple[Asked, Answer]]) -> defaultdict[Asked, list[Answer]]:
    """Return the second parts of pairs, in order, by the first parts; an empty list for any other key."""
    groups = defaultdict[Asked, list[Answer]](list)
    for first, second in pairs:
        groups[first].append(second)
    return groups


def _source(binding: Binding) -> cst.BaseExpression | None:
    """Return the value that a name is bound to, or to a part of; None for a parameter, a definition, an import."""
    node = binding.node
    if type(node) is cst.Assign:
        return node.value
    if type(node) is cst.WithItem:
        return node.item
    return node.iter if type(node) in (cst.For, cst.CompFor) else binding.value  # type: ignore[attr-defined]


def _is_label(node: cst.Name, parent: cst.CSTNode) -> bool:
    """Return whether a name is not a variable: an attribute, a keyword, an imported or defined name."""
    label = _LABELS.get(type(parent))
    return label is not None and (not label or getattr(parent, label) is node)


def plain_names(target: cst.CSTNode | None) -> Iterator[cst.Name]:
    """Yield the plain names in a target: `a` and `b` in `(a, *b)`."""
    if isinstance(target, cst.Name):
        yield target
    elif isinstance(target, cst.AsName):
        yield from plain_names(target.name)
    elif isinstance(target, (cst.Tuple, cst.List)):
        for element in target.elements:
            yield from plain_names(element.value)


def _module(node: cst.ImportFrom) -> str:
    """Return the module that names are imported from, with its leading dots."""
    return "." * len(node.relative) + (dotted(node.module) if node.module else "")


def dotted(node: cst.CSTNode) -> str:
    """Return `a.b.c` for a chain of plain names, else the empty string."""
    if isinstance(node, cst.Name):
        return node.value
    if isinstance(node, cst.Attribute):
        base = dotted(node.value)
        return f"{base}.{node.attr.value}" if base else ""
    return ""


def keyword(call: cst.Call, name: str) -> cst.Arg | None:
    """Return the argument passed under a keyword."""
    for given in call.args:
        if given.keyword is not None and given.keyword.value == name:
            return given
    return None


def argument(call: cst.Call, name: str, position: int | None = None) -> cst.Arg | None:
    """Return the argument passed under a keyword or, failing that, at a position."""
    if (named := keyword(call, name)) is not None:
        return named
    if position is None or position >= len(call.args):
        return None
    plain = call.args[: position + 1]
    return plain[-1] if all(a.keyword is None and not a.star for a in plain) else None


def method(node: cst.CSTNode) -> str:
    """Return the name of the method that a call calls: `run` for `app.run()`; empty for any other node."""
    return node.func.attr.value if type(node) is cst.Call and type(node.func) is cst.Attribute else ""


def own_class(tree: Tree, node: cst.CSTNode) -> cst.ClassDef | None:
    """Return the notebook's class on whose object a method is called: on `self`, or on a name for such an object."""
    if type(node) is not cst.Attribute:
        return None
    made, bound = tree.value(node.value), tree.definition(node.value)
    owner: cst.CSTNode | None = tree.definition(made.func) if isinstance(made, cst.Call) else None
    if isinstance(bound, cst.Param) and bound.name.value == "self" and (method := tree.function(bound)) is not None:
        owner = tree.scope(method)
    return owner if isinstance(owner, cst.ClassDef) else None


def small_statements(node: cst.CSTNode) -> Sequence[cst.BaseSmallStatement]:
    """Return the statements of a line, or of a suite that follows its colon on the same line."""
    return node.body if isinstance(node, (cst.SimpleStatementLine, cst.SimpleStatementSuite)) else ()


def head(statement: cst.CSTNode) -> cst.CSTNode:
    """Return a statement's first node in the text: its first decorator, if it has one."""
    decorators = getattr(statement, "decorators", ())
    return decorators[0] if decorators else statement
