"""DDP314: `await` outside a function runs in an event loop of its own."""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from nb2ddp.edits import Replace
from nb2ddp.model import Severity
from nb2ddp.program import Finding, Program
from nb2ddp.rule import Example, Rule


def find(program: Program) -> Iterator[Finding]:
    tree = program.tree
    for node in tree.of(cst.Await):
        if tree.function(node) is None:
            yield Finding(
                node,
                "await outside a function works in a notebook only",
                (Replace(node, f"asyncio.run({tree.text(node.expression)})"),),
                needs=frozenset({"asyncio"}),
            )
    for keyword in tree.of(cst.Asynchronous):
        owner = tree.parents[keyword]
        if not isinstance(owner, cst.FunctionDef) and tree.function(owner) is None:
            yield Finding(
                owner,
                "async for and async with outside a function work in a notebook only: move them into an async"
                " function and "
                "run it with asyncio.run",
                severity=Severity.ERROR,
            )


RULE = Rule(
    code="DDP314",
    name="await-outside-function",
    summary="`await x` at module level becomes `asyncio.run(x)`.",
    why="Only IPython runs a module's own `await`; in a script it is a syntax error.",
    find=find,
    examples=(
        Example("rows = await fetch(url)\n", "rows = asyncio.run(fetch(url))\n"),
        Example("async def f():\n    await g()\n"),
    ),
)
