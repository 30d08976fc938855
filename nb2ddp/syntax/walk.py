"""One pass over a parsed module: where each node stands, the nodes of each class, and the names that they bind.

LibCST's own providers take a pass each, and count lines and columns where offsets are wanted. What `Walk` relies on,
the state that a node writes its text into, is private to LibCST (`libcst/_nodes/internal.py`);
`tests/syntax/test_walk.py` holds this pass against them.
"""

from __future__ import annotations

import bisect
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import libcst as cst
from libcst._nodes.internal import CodegenState

Span = tuple[int, int]

_COMPREHENSIONS = (cst.ListComp, cst.SetComp, cst.GeneratorExp, cst.DictComp)
#: What binds names to a value that it holds itself.
_VALUES = (cst.Assign, cst.AnnAssign, cst.AugAssign, cst.NamedExpr, cst.WithItem)
SCOPES: Final = frozenset({cst.Module, cst.FunctionDef, cst.ClassDef, cst.Lambda, *_COMPREHENSIONS})


#: What nobody asks for, nearly half of all nodes.
SPACE: Final = frozenset({cst.SimpleWhitespace, cst.Newline})


class Walk(CodegenState):
    """The state of LibCST's code generation, which keeps offsets in the place of text, of all nodes but blanks.

    Args:
        module: a parsed module.

    Attributes:
        spans: start and end of each node's own text, as `libcst.metadata.PositionProvider` has it, by the node's `id`,
            which is found faster than by its hash.
        parents: what each node stands in, by `id` too; the module has no parent.
        by_type: the nodes of each class, in source order.
    """

    def __init__(self, module: cst.Module) -> None:
        super().__init__(module.default_indent, module.default_newline)
        self.spans: dict[int, Span] = {}
        self.parents: dict[int, cst.CSTNode] = {}
        self.by_type: dict[type[cst.CSTNode], list[cst.CSTNode]] = defaultdict(list)
        self.offset = 0
        self._indent = 0
        self._open: list[cst.CSTNode] = []
        self._starts: list[int] = []
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
            self.parents[id(node)] = self._open[-1]
        self._open.append(node)
        self._starts.append(self.offset)
        self.by_type[kind].append(node)

    def after_codegen(self, node: cst.CSTNode) -> None:
        if type(node) in SPACE:
            return
        self._open.pop()
        start = self._starts.pop()
        self.spans.setdefault(id(node), (start, self.offset))  # unless it has said itself where it begins and ends

    def record_syntactic_position(  # type: ignore[override]  # a context manager, as LibCST's generator is one
        self, node: cst.CSTNode, *, start_node: cst.CSTNode | None = None, end_node: cst.CSTNode | None = None
    ) -> _Recorded:
        """Take down where a node begins and ends without the space around it."""
        return _Recorded(self, node, start_node, end_node)


class _Recorded:
    """A node between its beginning and its end; another node may say where these are."""

    def __init__(
        self, walk: Walk, node: cst.CSTNode, start_node: cst.CSTNode | None, end_node: cst.CSTNode | None
    ) -> None:
        self._walk = walk
        self._node = node
        self._start_node = start_node
        self._end_node = end_node

    def __enter__(self) -> None:
        self._start = self._walk.offset

    def __exit__(self, error: type[BaseException] | None, *_: object) -> None:
        if error is not None:  # code that nests too deeply; its end has not been reached
            return
        spans = self._walk.spans
        start = self._start if self._start_node is None else spans[id(self._start_node)][0]
        end = self._walk.offset if self._end_node is None else spans[id(self._end_node)][1]
        spans[id(self._node)] = start, end


class Regions:
    """Parts of a source by their offsets: of those inside one another the outermost."""

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
        offset: where it takes effect: behind the value that is bound, which still sees what the name was before.
        node: the statement or element that binds it.
        imported: the full dotted name, where an import binds it.
        value: the bound value, where an assignment of a single name binds it.
    """

    offset: int
    node: cst.CSTNode
    imported: str | None = None
    value: cst.BaseExpression | None = None


#: A name, what binds it, and the fields of the binding.
_Bound = tuple[str, cst.CSTNode, dict[str, Any]]


class Bindings:
    """Every binding of a source.

    Args:
        walk: the source's nodes, with their places and parents.

    Attributes:
        by_scope: for each scope its names, each with its bindings in order.
        star_imports: the modules of `from module import *`.
        stores: the names that are bound where they stand, and so not read.
    """

    def __init__(self, walk: Walk) -> None:
        self._walk = walk
        self.by_scope: dict[cst.CSTNode, dict[str, list[Binding]]] = defaultdict(lambda: defaultdict(list))
        self.star_imports: list[str] = []
        self.stores: set[cst.CSTNode] = set()
        (self._module,) = walk.by_type[cst.Module]
        self._globals: dict[cst.CSTNode, set[str]] = defaultdict(set)
        for statement in walk.by_type[cst.Global]:
            names = cst.ensure_type(statement, cst.Global).names
            self._globals[self._scope(statement)].update(item.name.value for item in names)
        for kind, bound in self._kinds().items():
            for node in walk.by_type.get(kind, ()):
                for name, at, fields in bound(node):
                    self._add(name, at, node=node, **fields)
        for names_of in self.by_scope.values():
            for bindings in names_of.values():
                bindings.sort(key=lambda binding: binding.offset)

    def _kinds(self) -> dict[type[cst.CSTNode], Callable[[Any], Iterator[_Bound]]]:
        """What binds names, and which."""
        target, named, caught = partial(self._target, value=None), self._named, self._caught
        return {
            cst.Import: self._import,
            cst.ImportFrom: self._import_from,
            cst.Assign: self._assign,
            cst.AnnAssign: lambda node: self._target(node.target, node, node.value),
            cst.NamedExpr: lambda node: self._target(node.target, node, node.value),
            **dict.fromkeys((cst.AugAssign, cst.For, cst.CompFor), lambda node: target(node.target, node)),
            cst.WithItem: lambda node: caught(node.asname, node),
            cst.ExceptHandler: lambda node: caught(node.name, node),
            **dict.fromkeys((cst.FunctionDef, cst.ClassDef, cst.Param), named),
            **dict.fromkeys((cst.MatchAs, cst.MatchStar), lambda node: target(node.name, node)),
        }

    def _add(self, name: str, at: cst.CSTNode, **fields: Any) -> None:
        scope = self._scope(fields["node"])
        if name in self._globals[scope]:
            scope = self._module
        self.by_scope[scope][name].append(Binding(self._in_effect(at), **fields))

    def _scope(self, node: cst.CSTNode) -> cst.CSTNode:
        parents = self._walk.parents
        node = parents[id(node)]
        while type(node) not in SCOPES:
            node = parents[id(node)]
        return node

    def _in_effect(self, node: cst.CSTNode) -> int:
        """Where a name that a node binds begins to stand for what is bound."""
        if isinstance(node, (cst.For, cst.FunctionDef, cst.ClassDef)):
            return self._walk.spans[id(node.body)][0] - 1
        start, end = self._walk.spans[id(node)]
        return end - 1 if isinstance(node, _VALUES) else start

    def _import(self, node: cst.Import) -> Iterator[_Bound]:
        for alias in node.names:
            full = dotted(alias.name)
            first = full.split(".")[0]
            if alias.asname is not None:
                yield dotted(alias.asname.name), alias, {"imported": full}
            else:
                yield first, alias, {"imported": first}

    def _import_from(self, node: cst.ImportFrom) -> Iterator[_Bound]:
        module = "." * len(node.relative) + (dotted(node.module) if node.module else "")
        if isinstance(node.names, cst.ImportStar):
            self.star_imports.append(module)
            return
        for alias in node.names:
            name = dotted(alias.asname.name) if alias.asname else dotted(alias.name)
            yield name, alias, {"imported": f"{module}.{dotted(alias.name)}"}

    def _assign(self, node: cst.Assign) -> Iterator[_Bound]:
        for target in node.targets:
            value = node.value if isinstance(target.target, cst.Name) else None
            yield from self._target(target.target, node, value)

    def _caught(self, asname: cst.AsName | None, node: cst.CSTNode) -> Iterator[_Bound]:
        if asname is not None:
            yield from self._target(asname.name, node, None)

    def _named(self, node: cst.FunctionDef | cst.ClassDef | cst.Param) -> Iterator[_Bound]:
        yield node.name.value, node, {}

    def _target(
        self, target: cst.CSTNode | None, node: cst.CSTNode, value: cst.BaseExpression | None
    ) -> Iterator[_Bound]:
        if isinstance(target, cst.Name):
            if not isinstance(node, cst.AugAssign):
                self.stores.add(target)
            yield target.value, node, {"value": value}
        elif isinstance(target, (cst.Tuple, cst.List)):
            for element in target.elements:
                yield from self._target(element.value, node, None)
        elif isinstance(target, cst.StarredElement):
            yield from self._target(target.value, node, None)


def dotted(node: cst.CSTNode) -> str:
    """`a.b.c` for a chain of plain names, else the empty string."""
    if isinstance(node, cst.Name):
        return node.value
    if isinstance(node, cst.Attribute):
        base = dotted(node.value)
        return f"{base}.{node.attr.value}" if base else ""
    return ""
