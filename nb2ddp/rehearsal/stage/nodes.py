"""What stands in the text of a script, as Python's own parser gives it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import TypeVar

Kind = TypeVar("Kind", bound=ast.AST)


def every(tree: ast.AST, kind: type[Kind]) -> Iterator[Kind]:
    """The nodes of a kind."""
    return (node for node in ast.walk(tree) if isinstance(node, kind))


def constant(node: ast.AST | None) -> str | None:
    """The text that an expression is, where it is a constant."""
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else None


def texts(tree: ast.AST) -> list[str]:
    """All such texts."""
    return [node.value for node in every(tree, ast.Constant) if isinstance(node.value, str)]


def calls(tree: ast.AST) -> Iterator[tuple[str, ast.Call]]:
    """Every call, with the last name of what is called."""
    return ((_last_name(call.func), call) for call in every(tree, ast.Call))


def used(tree: ast.AST) -> set[str]:
    """The last name of everything that is called, or is the base of a class."""
    bases = (base for node in every(tree, ast.ClassDef) for base in node.bases)
    return {name for name, _ in calls(tree)} | {*map(_last_name, bases)}


def imported(tree: ast.AST) -> Iterator[tuple[str, str]]:
    """Every import: the module, and the name that is taken from it, or ""."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((each.name, "") for each in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield from ((node.module, each.name) for each in node.names)


def _last_name(expression: ast.expr) -> str:
    return ast.unparse(expression).split(".")[-1]
