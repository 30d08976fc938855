"""One pass over a parsed module: the position of each node, the nodes of each class, and the names that they bind.

LibCST's own providers take a pass each, and count lines and columns where offsets are wanted. What `Walk` relies on,
the state that a node writes its text into, is private to LibCST (`libcst/_nodes/internal.py`);
`tests/syntax/test_walk.py` holds this pass against them.
"""

from __future__ import annotations

import bisect
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

import libcst as cst
from libcst._nodes.internal import CodegenState

Span = tuple[int, int]

_COMPREHENSIONS = (cst.ListComp, cst.SetComp, cst.GeneratorExp, cst.DictComp)
#: What binds names to a value that it holds itself.
_VALUES = (cst.Assign, cst.AnnAssign, cst.AugAssign, cst.NamedExpr, cst.WithItem)
#: What binds names beside imports, and the field that holds them.
_BINDING: Final[dict[type[cst.CSTNode], str]] = {
    cst.Assign: "targets",
    **dict.fromkeys((cst.AnnAssign, cst.NamedExpr, cst.AugAssign, cst.For, cst.CompFor), "target"),
    **dict.fromkeys((cst.FunctionDef, cst.ClassDef, cst.Param, cst.MatchAs, cst.MatchStar, cst.ExceptHandler), "name"),
    cst.WithItem: "asname",
}
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


@dataclass
class _Recorded:
    """A node between its beginning and its end; another node may say where these are."""

    walk: Walk
    node: cst.CSTNode
    start_node: cst.CSTNode | None
    end_node: cst.CSTNode | None

    def __enter__(self) -> None:
        self._start = self.walk.offset

    def __exit__(self, error: type[BaseException] | None, *_: object) -> None:
        if error is not None:  # code that nests too deeply; its end has not been reached
            return
        spans = self.walk.spans
        start = self._start if self.start_node is None else spans[id(self.start_node)][0]
        end = self.walk.offset if self.end_node is None else spans[id(self.end_node)][1]
        spans[id(self.node)] = start, end


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
        for kind, field in _BINDING.items():
            for node in walk.by_type.get(kind, ()):
                bound = getattr(node, field)
                for target in [each.target for each in bound] if kind is cst.Assign else [bound]:
                    self._bind(target, node)
        for alias in walk.by_type.get(cst.ImportAlias, ()):
            self._import(cst.ensure_type(alias, cst.ImportAlias))
        for each in walk.by_type.get(cst.ImportFrom, ()):
            if isinstance((whole := cst.ensure_type(each, cst.ImportFrom)).names, cst.ImportStar):
                self.star_imports.append(_module(whole))
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
        """Where a name that a node binds begins to stand for what is bound."""
        if isinstance(node, (cst.For, cst.FunctionDef, cst.ClassDef)):
            return self._walk.spans[id(node.body)][0] - 1
        start, end = self._walk.spans[id(node)]
        return end - 1 if isinstance(node, _VALUES) else start


def plain_names(target: cst.CSTNode | None) -> Iterator[cst.Name]:
    """The plain names in what is bound: `a` and `b` in `(a, *b)`."""
    if isinstance(target, cst.Name):
        yield target
    elif isinstance(target, cst.AsName):
        yield from plain_names(target.name)
    elif isinstance(target, (cst.Tuple, cst.List)):
        for element in target.elements:
            yield from plain_names(element.value)


def _module(node: cst.ImportFrom) -> str:
    """The module that names are imported from, with the dots before it."""
    return "." * len(node.relative) + (dotted(node.module) if node.module else "")


def dotted(node: cst.CSTNode) -> str:
    """`a.b.c` for a chain of plain names, else the empty string."""
    if isinstance(node, cst.Name):
        return node.value
    if isinstance(node, cst.Attribute):
        base = dotted(node.value)
        return f"{base}.{node.attr.value}" if base else ""
    return ""
