"""Search the syntax tree of a script."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import TypeVar

Kind = TypeVar("Kind", bound=ast.AST)


def every(tree: ast.AST, kind: type[Kind]) -> Iterator[Kind]:
    """Yield the nodes of a kind."""
    return (node for node in ast.walk(tree) if isinstance(node, kind))


def constant(node: ast.AST | None) -> str | None:
    """Return the text of an expression if it is a string constant, else None."""
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else None


def texts(tree: ast.AST) -> list[str]:
    """Return the texts of all string constants."""
    return [node.value for node in every(tree, ast.Constant) if isinstance(node.value, str)]


def calls(tree: ast.AST) -> Iterator[tuple[str, ast.Call]]:
    """Yield every call, with the last name of its function."""
    return ((_last_name(call.func), call) for call in every(tree, ast.Call))


def used(tree: ast.AST) -> set[str]:
    """Return the last name of every function that is called, and of every base class."""
    bases = (base for node in every(tree, ast.ClassDef) for base in node.bases)
    return {name for name, _ in calls(tree)} | {*map(_last_name, bases)}


def imported(tree: ast.AST) -> Iterator[tuple[str, str]]:
    """Yield every import: the module, and the name that is imported from it, or ""."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((each.name, "") for each in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield from ((node.module, each.name) for each in node.names)


def _last_name(expression: ast.expr) -> str:
    return ast.unparse(expression).split(".")[-1]
