"""Sounds of data sets: where the code has datasets decode them, and whether it needs them as dictionaries.

A decoded sound is a dictionary in datasets 3. Since 4 it is an `AudioDecoder`, which answers `["array"]` and
`["sampling_rate"]` alone: `in`, `get` and other keys raise an error (`features/_torchcodec.py`, 4.8.5).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

import libcst as cst

from nb2ddp.facts.flow import owner_of
from nb2ddp.syntax.tree import Tree, method

if TYPE_CHECKING:
    from nb2ddp.facts.program import Program

#: The type of a column of sounds.
_SOUND = re.compile(r"datasets(\.features(\.audio)?)?\.Audio")
_ROWS = frozenset({"datasets.load_dataset", "datasets.load_from_disk"})
#: The keys that a sound has in all versions, and those of the dictionary alone.
_KEYS = frozenset({"array", "sampling_rate"})
_OF_DICTIONARY = frozenset({"path", "bytes"})
_METHODS = frozenset({"get", "items", "keys", "values"})
#: What shows that the code knows both.
_KNOWS_DECODERS = re.compile(r"get_all_samples|AudioDecoder")


def sounds(tree: Tree) -> list[cst.CSTNode]:
    """Where the code makes a column one of sounds, and then what it reads the sounds of loaded rows from."""
    casts = [call for call in tree.live(cst.Call) if _SOUND.fullmatch(tree.qualified(call.func))]
    return [*casts, *_read(tree), *_tested(tree)]


def asked_as_dictionary(program: Program) -> cst.CSTNode | None:
    """The first sound that the code asks what only a dictionary answers; None if it knows what datasets 4 gives."""
    tree = program.tree
    if _KNOWS_DECODERS.search(program.text):
        return None
    read = {tree.text(owner) for owner in _read(tree)}
    asked = [owner for owner in _asked(tree) if tree.text(owner) in read]
    return min([*_tested(tree), *asked], key=tree.start, default=None)


def _read(tree: Tree) -> list[cst.BaseExpression]:
    """What the code takes `["array"]` or `["sampling_rate"]` of."""
    taken = [node for node in tree.live(cst.Subscript) if not isinstance(tree.parents[node], cst.AssignTarget)]
    return [node.value for node in taken if _key(tree, node) in _KEYS and _is_of_rows(tree, node.value)]


def _tested(tree: Tree) -> list[cst.BaseExpression]:
    """What the code asks for one of these keys: `"array" in sound`, `sound.get("array")`."""
    parts = [(each.left, each.comparisons[0]) for each in tree.live(cst.Comparison)]
    asked = [(key, part.comparator) for key, part in parts if isinstance(part.operator, (cst.In, cst.NotIn))]
    gets = [call for call in tree.live(cst.Call) if call.args and method(call) == "get"]
    asked += [(call.args[0].value, owner) for call in gets if (owner := owner_of(call)) is not None]
    return [owner for key, owner in asked if tree.literal(key) in _KEYS and _is_of_rows(tree, owner)]


def _asked(tree: Tree) -> Iterator[cst.BaseExpression]:
    """What the code takes for a dictionary of some kind."""
    for call in tree.live(cst.Call):
        owner = owner_of(call)
        if owner is not None and method(call) in _METHODS:
            yield owner
        elif (
            tree.qualified(call.func) == "isinstance" and len(call.args) > 1 and tree.text(call.args[1].value) == "dict"
        ):
            yield call.args[0].value
    yield from (node.value for node in tree.live(cst.Subscript) if _key(tree, node) in _OF_DICTIONARY)


def _key(tree: Tree, node: cst.Subscript) -> object:
    """The key of `row["audio"]`; `...` for none that is known."""
    part = node.slice[0].slice
    return tree.literal(part.value) if isinstance(part, cst.Index) else ...


def _is_of_rows(tree: Tree, node: cst.BaseExpression) -> bool:
    """True for a part of a row, or what no value is known of, in code that loads data sets."""
    if not any(tree.qualified(call.func) in _ROWS for call in tree.live(cst.Call)):
        return False
    values = tree.values(node) or [node]
    return any(isinstance(value, (cst.Subscript, cst.Name)) or method(value) == "get" for value in values)
