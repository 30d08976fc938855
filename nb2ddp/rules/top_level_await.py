"""DDP314: `await x` at module level becomes `asyncio.run(x)`."""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from nb2ddp.facts.program import Program
from nb2ddp.results import Severity
from nb2ddp.rules.rule import Finding, rule
from nb2ddp.syntax.edits import Edit, InsertBefore, Replace
from nb2ddp.syntax.tree import Tree


@rule("DDP314")
def await_outside_function(program: Program) -> Iterator[Finding]:
    tree = program.tree
    outer = [node for node in tree.of(cst.Await) if tree.function(node) is None]
    wrapped = 0
    for node in outer:
        if any(other is not node and node in tree.within(other, cst.Await) for other in outer):
            continue
        code, edits = f"asyncio.run({tree.text(node.expression)})", list[Edit]()
        if not _is_coroutine_call(tree, node):
            wrapped += 1
            name = program.name(f"run_async_{wrapped}")
            body = f"async def {name}():\n    return {tree.text(node)}\n"
            code, edits = f"asyncio.run({name}())", [InsertBefore(tree.statement(node), body)]
        said = "await outside a function works in a notebook only; the script runs it with asyncio.run"
        yield Finding(node, said, (*edits, Replace(node, code)))
    for keyword in tree.of(cst.Asynchronous):
        owner = tree.parents[keyword]
        if not isinstance(owner, cst.FunctionDef) and tree.function(owner) is None:
            yield Finding(
                owner,
                "async for and async with outside a function work in a notebook only, so there is no script: move them"
                " into an async function and run it with asyncio.run",
                severity=Severity.ERROR,
            )


def _is_coroutine_call(tree: Tree, node: cst.Await) -> bool:
    """True for `await f(...)` that needs no running loop while its arguments are worked out."""
    call = node.expression
    simple = isinstance(call, cst.Call) and not tree.qualified(call.func).startswith("asyncio.")
    return simple and len(tree.within(node, cst.Await)) == 1
