"""Arguments of a call wherever they stand: in the call, or in a dictionary that it unpacks."""

from __future__ import annotations

from dataclasses import dataclass

import libcst as cst

from nb2ddp.syntax.edits import Edit, Replace, SetKeyword, SetUnpacked
from nb2ddp.syntax.tree import Tree, keyword


@dataclass(frozen=True)
class Passed:
    """A value passed under a keyword, and the node that holds it.

    That is the dictionary the call unpacks, where it holds the value itself; else the call.
    """

    value: cst.BaseExpression
    holder: cst.CSTNode


def passed(tree: Tree, call: cst.Call, name: str) -> Passed | None:
    """The value a call is given under a keyword, through `**settings` where the notebook writes the dictionary out."""
    direct = keyword(call, name)
    if direct is not None:
        return Passed(direct.value, call)
    for argument in call.args:
        if argument.star == "**" and (found := entry(tree, argument.value, name)) is not None:
            return found if found.holder is _whole(tree, argument.value) else Passed(found.value, call)
    return None


def constant(tree: Tree, call: cst.Call, name: str) -> object:
    """The constant that a call is passed under a keyword, see `passed`: `...` for any other value, None for none."""
    found = passed(tree, call, name)
    return None if found is None else tree.literal(found.value)


def entry(tree: Tree, node: cst.BaseExpression, name: str) -> Passed | None:
    """The value under a key of a dictionary that the notebook writes out, and the `{...}` or `dict(...)` around it."""
    found = [Passed(value, holder) for key, value, holder in _entries(tree, node, name) or () if key == name]
    return found[-1] if found else None


def is_closed(tree: Tree, call: cst.Call) -> bool:
    """True where every argument of a call is written out: nothing else can come in by `**`."""
    return all(_entries(tree, argument.value) is not None for argument in call.args if argument.star == "**")


def set_argument(tree: Tree, call: cst.Call, name: str, value: str, at_call: bool = False) -> Edit:
    """Pass `name = value`, in the place where the notebook passes it, or in the call itself."""
    found = passed(tree, call, name)
    if found is not None and found.holder is not call and not at_call:
        return Replace(found.value, value)
    stars = [a for a in call.args if a.star == "**"]
    if found is not None and keyword(call, name) is None:  # in a dictionary that the unpacked one takes in
        return SetUnpacked(next(a for a in stars if entry(tree, a.value, name) is not None), name, value)
    unclear = next((a for a in stars if _entries(tree, a.value, name) is None), None)
    if found is None and unclear is not None:  # what it unpacks may hold the name too
        return SetUnpacked(unclear, name, value)
    return SetKeyword(call, name, value)


def _entries(
    tree: Tree, node: cst.BaseExpression, name: str | None = None, depth: int = 8
) -> list[tuple[str, cst.BaseExpression, cst.CSTNode]] | None:
    """Key, value and holder of each entry of the dictionary that an expression stands for, later ones over earlier.

    None where not all of its keys are written out, and where it is changed later: under the one key that is asked for,
    or under any.
    """
    changed = _changed_keys(tree, node)
    source = tree.value(node)
    parts = _parts(tree, source)
    if parts is None or not depth or ... in changed or (changed and name is None) or name in changed:
        return None
    entries: list[tuple[str, cst.BaseExpression, cst.CSTNode]] = []
    for key, value in parts:
        inner = _entries(tree, value, name, depth - 1) if key is None else [(key, value, source)]
        if inner is None:
            return None
        entries += inner
    return entries


def _whole(tree: Tree, node: cst.BaseExpression, depth: int = 8) -> cst.BaseExpression:
    """What an expression stands for; of a filtered dictionary, the one that it is made from."""
    source = tree.value(node)
    owner = _filtered(tree, source)
    return source if owner is None or not depth else _whole(tree, owner, depth - 1)


def _filtered(tree: Tree, source: cst.BaseExpression) -> cst.BaseExpression | None:
    """The dictionary in `{k: v for k, v in given.items() if k in known}`, whose test names no key."""
    if not isinstance(source, cst.DictComp):
        return None
    loop, pair = source.for_in, f"{tree.text(source.key)}, {tree.text(source.value)}"
    items = loop.iter.func if isinstance(loop.iter, cst.Call) and not loop.iter.args else None
    named = any(tree.within(each, cst.SimpleString) for each in loop.ifs)
    if not isinstance(items, cst.Attribute) or items.attr.value != "items" or loop.inner_for_in or named:
        return None
    return items.value if tree.text(loop.target).strip("()") == pair else None


def _parts(tree: Tree, source: cst.BaseExpression) -> list[tuple[str | None, cst.BaseExpression]] | None:
    """Keys and values of a dictionary that is written out, in order; None for the key of a dictionary it takes in."""
    if isinstance(source, cst.Call) and tree.qualified(source.func) == "dict":
        return [(a.keyword.value if a.keyword is not None else None, a.value) for a in source.args]
    if isinstance(source, cst.BinaryOperation) and isinstance(source.operator, cst.BitOr):
        return [(None, source.left), (None, source.right)]
    if (owner := _filtered(tree, source)) is not None:
        return [(None, owner)]
    if not isinstance(source, cst.Dict):
        return None
    parts: list[tuple[str | None, cst.BaseExpression]] = []
    for element in source.elements:
        key = tree.literal(element.key) if isinstance(element, cst.DictElement) else None
        if isinstance(element, cst.DictElement) and not isinstance(key, str):
            return None
        parts.append((key if isinstance(key, str) else None, element.value))
    return parts


def _changed_keys(tree: Tree, node: cst.BaseExpression) -> set[object]:
    """The keys under which a dictionary with a name is changed by a statement; `...` for any."""
    keys: set[object] = set()
    for use in tree.loads(node.value) if isinstance(node, cst.Name) else ():
        parent = tree.parents[use]
        above = tree.parents[parent]
        if isinstance(parent, cst.Subscript) and isinstance(above, (cst.AssignTarget, cst.AugAssign, cst.Del)):
            index = parent.slice[0].slice
            keys.add(tree.literal(index.value) if isinstance(index, cst.Index) else ...)
        elif isinstance(parent, cst.AugAssign) or (
            isinstance(parent, cst.Attribute) and parent.attr.value in ("update", "setdefault", "pop", "clear")
        ):
            keys.add(...)
    return keys
