"""Sounds of data sets: the places where datasets decodes them."""

from __future__ import annotations

import re

import libcst as cst

from nb2ddp.facts.flow import key_of
from nb2ddp.facts.values import values
from nb2ddp.syntax.tree import Tree, method

#: The type of a column of sounds.
_SOUND = re.compile(r"datasets(\.features(\.audio)?)?\.Audio")
_ROWS = frozenset({"datasets.load_dataset", "datasets.load_from_disk"})
#: The keys of a decoded sound.
_KEYS = frozenset({"array", "sampling_rate"})


def sounds(tree: Tree) -> list[cst.CSTNode]:
    """Return the calls that make a column one of sounds, then the nodes from which code reads sounds of loaded rows."""
    calls = list(tree.live(cst.Call))
    casts = [call for call in calls if _SOUND.fullmatch(tree.qualified(call.func))]
    loads_rows = any(tree.qualified(call.func) in _ROWS for call in calls)
    read = [node for node in tree.live(cst.Subscript) if not isinstance(tree.parents[node], cst.AssignTarget)]
    owners = [node.value for node in read if loads_rows and key_of(tree, node) in _KEYS]
    return [*casts, *(node for node in owners if _is_of_row(tree, node))]


def _is_of_row(tree: Tree, node: cst.BaseExpression) -> bool:
    """Return whether an expression is a part of a row, or has no known value."""
    found = values(tree, node) or [node]
    return any(isinstance(value, (cst.Subscript, cst.Name)) or method(value) == "get" for value in found)
