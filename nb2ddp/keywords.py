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
    for source in _unpacked(tree, call):
        for key, value in _entries(source):
            if key == name:
                return Passed(value, source)
    return None


def is_closed(tree: Tree, call: cst.Call) -> bool:
    """True where every argument of a call is written out: nothing else can come in by `**`."""
    stars = sum(1 for argument in call.args if argument.star == "**")
    return stars == len(_unpacked(tree, call))


def set_argument(tree: Tree, call: cst.Call, name: str, value: str) -> Edit:
    """Pass `name = value`, in the place where the notebook passes it."""
    found = passed(tree, call, name)
    if found is not None and found.holder is not call:
        return Replace(found.value, value)
    if found is None and not is_closed(tree, call):
        star = next(a for a in call.args if a.star == "**" and _dictionary(tree, a.value) is None)
        return SetUnpacked(star, name, value)
    return SetKeyword(call, name, value)


def _unpacked(tree: Tree, call: cst.Call) -> list[cst.CSTNode]:
    found = [_dictionary(tree, argument.value) for argument in call.args if argument.star == "**"]
    return [source for source in found if source is not None]


def _dictionary(tree: Tree, node: cst.BaseExpression) -> cst.CSTNode | None:
    """The `{...}` or `dict(...)` that an expression stands for, where all its keys are written out."""
    source = tree.value(node)
    if isinstance(source, cst.Call) and tree.qualified(source.func) == "dict":
        return source if all(a.keyword is not None for a in source.args) else None
    if isinstance(source, cst.Dict):
        plain = all(isinstance(e, cst.DictElement) and isinstance(e.key, cst.SimpleString) for e in source.elements)
        return source if plain else None
    return None


def _entries(source: cst.CSTNode) -> list[tuple[str, cst.BaseExpression]]:
    if isinstance(source, cst.Call):
        return [(a.keyword.value, a.value) for a in source.args if a.keyword is not None]
    elements = [e for e in cst.ensure_type(source, cst.Dict).elements if isinstance(e, cst.DictElement)]
    return [(str(cst.ensure_type(e.key, cst.SimpleString).evaluated_value), e.value) for e in elements]
