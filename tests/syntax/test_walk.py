"""The single pass over a module, compared with LibCST's own providers."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

import libcst as cst
import pytest
from libcst.metadata import CodeRange, MetadataWrapper, ParentNodeProvider, PositionProvider

from nb2ddp.syntax.tree import SPACE, Walk

ROOT = Path(__file__).parents[2]
#: Code of every kind: a sample of the package and of the converted scripts.
SOURCES = sorted([*(ROOT / "nb2ddp").rglob("*.py"), *(ROOT / "fixtures" / "expected").glob("*.py")])[::16]
SYNTAX = """\
@first(1)
async def f(a, /, b: int = 1, *c, d, **e) -> str:
    async with x as y, z: await q
    async for i in j: pass
    else: pass
    return (yield)
class C(B, metaclass = M): x: int; y: str = "a"
try: pass
except* (A, B) as e: raise E from e
finally: del a, b[1:2:3]
match command.split():
    case [1, *rest] | {"a": x, **other} if rest: pass
    case P(x = 1) as p: pass
    case None: pass
x = lambda a, *b, c = 1, **d: (a if b else c)
[*a, (b := 1)]; {**c, "d": e}; {1, 2}; (i for i in j if k async for l in m)
print(f"{x!r:>{width}} {y}", "a" "b", not -a ** b @ c // d, a < b <= c is not d, sep = "")
while True:
    break
with (a as b, c): global g; import h.i as j; from . import (k as l, m)
if a: \\
    pass
elif b: pass
else:

    # a comment

    pass  # another
"""


@pytest.mark.parametrize("source", [SYNTAX, SYNTAX.rstrip("\n"), "", "\n", "x", *(p.read_text() for p in SOURCES)])
def test_equals_libcsts_providers(source: str) -> None:
    module = cst.parse_module(source)
    walk = Walk(module)
    wrapper = MetadataWrapper(module, unsafe_skip_copy=True)
    starts = [0]
    for line in source.split("\n"):
        starts.append(starts[-1] + len(line) + 1)

    def span(place: CodeRange) -> tuple[int, int]:
        return (
            starts[place.start.line - 1] + place.start.column,
            starts[place.end.line - 1] + place.end.column,
        )

    places = {node: place for node, place in wrapper.resolve(PositionProvider).items() if type(node) not in SPACE}
    spans = {node: span(place) for node, place in places.items() if node is not module}
    assert {node: walk.spans[id(node)] for node in spans} == spans
    assert len(walk.spans) == len(spans) + 1
    above = wrapper.resolve(ParentNodeProvider)
    parents = {node: parent for node, parent in above.items() if node is not module and type(node) not in SPACE}
    assert {node: walk.parents[id(node)] for node in parents} == parents
    by_type: dict[type[cst.CSTNode], list[cst.CSTNode]] = defaultdict(list)
    for node in sorted(spans, key=spans.__getitem__):
        by_type[type(node)].append(node)
    for kind, nodes in by_type.items():
        assert set(nodes) == set(walk.by_type[kind])
        assert len(nodes) == len(walk.by_type[kind])
