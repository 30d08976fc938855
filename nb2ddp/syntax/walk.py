"""One pass over a parsed module: where each node stands, what it stands in, and the nodes of each class.

LibCST's own providers take a pass each, and count lines and columns where offsets are wanted. What they rely on, the
state that a node writes its text into, is private to LibCST (`libcst/_nodes/internal.py`); `tests/syntax/test_walk.py`
holds this pass against them.
"""

from __future__ import annotations

from collections import defaultdict

import libcst as cst
from libcst._nodes.internal import CodegenState

Span = tuple[int, int]


class Walk(CodegenState):
    """The state of LibCST's code generation, which keeps offsets in the place of text.

    Args:
        module: a parsed module.

    Attributes:
        spans: start and end of each node's own text, as `libcst.metadata.PositionProvider` has it, by the node's `id`,
            which is found faster than by its hash.
        parents: what each node stands in; the module has no parent.
        by_type: the nodes of each class, in source order.
    """

    def __init__(self, module: cst.Module) -> None:
        super().__init__(module.default_indent, module.default_newline)
        self.spans: dict[int, Span] = {}
        self.parents: dict[cst.CSTNode, cst.CSTNode] = {}
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
        if self._open:
            self.parents[node] = self._open[-1]
        self._open.append(node)
        self._starts.append(self.offset)
        self.by_type[type(node)].append(node)

    def after_codegen(self, node: cst.CSTNode) -> None:
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
