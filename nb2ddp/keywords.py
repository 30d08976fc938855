"""Arguments of a call wherever they stand: in the call, or in a dictionary that it unpacks."""

from __future__ import annotations

from dataclasses import dataclass

import libcst as cst

from nb2ddp.edits import Edit, Replace, SetKeyword, SetUnpacked
from nb2ddp.tree import Tree, keyword


@dataclass(frozen=True)
class Passed:
    """A value passed under a keyword, and the node that holds it: the call itself or the unpacked dictionary."""

    value: cst.BaseExpression
    holder: cst.CSTNode


def passed(tree: Tree, call: cst.Call, name: str) -> Passed | None:
    """The value a call is given under a keyword, through `**settings` where the notebook writes the dictionary out."""
    direct = keyword(call, name)
    if direct is not None:
        return Passed(direct.value, call)
    return next((found for a in call.args if a.star == "**" and (found := entry(tree, a.value, name))), None)


def entry(tree: Tree, node: cst.BaseExpression, name: str) -> Passed | None:
    """The value under a key of a dictionary that the notebook writes out."""
    source = _dictionary(tree, node, name)
    entries = _entries(source) if source is not None else []
    return next((Passed(value, source or node) for key, value in entries if key == name), None)


def is_closed(tree: Tree, call: cst.Call) -> bool:
    """True where every argument of a call is written out: nothing else can come in by `**`."""
    return all(_dictionary(tree, argument.value) is not None for argument in call.args if argument.star == "**")


def set_argument(tree: Tree, call: cst.Call, name: str, value: str) -> Edit:
    """Pass `name = value`, in the place where the notebook passes it."""
    found = passed(tree, call, name)
    if found is not None and found.holder is not call:
        return Replace(found.value, value)
    if found is None and not is_closed(tree, call):
        stars = [a for a in call.args if a.star == "**"]
        return SetUnpacked(next((a for a in stars if _dictionary(tree, a.value, name) is None), stars[0]), name, value)
    return SetKeyword(call, name, value)


def _dictionary(tree: Tree, node: cst.BaseExpression, name: str | None = None) -> cst.CSTNode | None:
    """The `{...}` or `dict(...)` that an expression stands for, where all its keys are written out.

    None too where it is changed later: under the one key that is asked for, or under any.
    """
    changed = _changed_keys(tree, node)
    if ... in changed or (changed and name is None) or name in changed:
        return None
    source = tree.value(node)
    if isinstance(source, cst.Call) and tree.qualified(source.func) == "dict":
        return source if all(a.keyword is not None for a in source.args) else None
    if isinstance(source, cst.Dict):
        plain = all(isinstance(e, cst.DictElement) and isinstance(e.key, cst.SimpleString) for e in source.elements)
        return source if plain else None
    return None


def _changed_keys(tree: Tree, node: cst.BaseExpression) -> set[object]:
    """The keys under which a dictionary with a name is changed by a statement; `...` for any."""
    keys: set[object] = set()
    for use in tree.loads(node.value) if isinstance(node, cst.Name) else ():
        parent = tree.parents[use]
        if isinstance(parent, cst.Subscript) and isinstance(tree.parents[parent], (cst.AssignTarget, cst.AugAssign)):
            index = parent.slice[0].slice
            keys.add(tree.literal(index.value) if isinstance(index, cst.Index) else ...)
        elif isinstance(parent, cst.AugAssign) or (
            isinstance(parent, cst.Attribute) and parent.attr.value in ("update", "setdefault", "pop", "clear")
        ):
            keys.add(...)
    return keys


def _entries(source: cst.CSTNode) -> list[tuple[str, cst.BaseExpression]]:
    if isinstance(source, cst.Call):
        return [(a.keyword.value, a.value) for a in source.args if a.keyword is not None]
    elements = [e for e in cst.ensure_type(source, cst.Dict).elements if isinstance(e, cst.DictElement)]
    return [(str(cst.ensure_type(e.key, cst.SimpleString).evaluated_value), e.value) for e in elements]
