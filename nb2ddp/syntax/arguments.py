"""Find the arguments of a call, in the call itself or in a dictionary that it unpacks."""

from __future__ import annotations

from dataclasses import dataclass

import libcst as cst

from nb2ddp.syntax.tree import Tree, keyword

#: The key of an item that merges another dictionary.
_TAKEN_IN = object()


@dataclass(frozen=True)
class Passed:
    """A value passed under a keyword, and the node that contains it.

    The node is the dictionary expression that contains the value, if the call unpacks one; else the call.
    """

    value: cst.BaseExpression
    holder: cst.CSTNode


def passed(tree: Tree, call: cst.Call, name: str) -> Passed | None:
    """Return the value that a call passes under a keyword, directly or in a written-out dictionary (`**settings`)."""
    direct = keyword(call, name)
    if direct is not None:
        return Passed(direct.value, call)
    unpacked = (entry(tree, argument.value, name) for argument in call.args if argument.star == "**")
    return next((passed for passed in unpacked if passed is not None), None)


def constant(tree: Tree, call: cst.Call, name: str) -> object:
    """Return the constant that a call passes under a keyword (see `passed`): `...` if not constant, None if absent."""
    argument = passed(tree, call, name)
    return None if argument is None else tree.literal(argument.value)


def entry(tree: Tree, node: cst.BaseExpression, name: str) -> Passed | None:
    """Return the value under a key of a dictionary that the notebook writes out, and its `{...}` or `dict(...)`."""
    return entries_of(tree, node, name)[0].get(name)


def is_closed(tree: Tree, call: cst.Call) -> bool:
    """Return whether every argument of a call is written out, so that `**` adds no others."""
    return all(entries_of(tree, argument.value)[1] for argument in call.args if argument.star == "**")


def entries_of(
    tree: Tree, node: cst.BaseExpression, name: str | None = None, depth: int = 8
) -> tuple[dict[object, Passed], bool]:
    """Return the values of the dictionary that an expression resolves to, by key, and whether these are all.

    A value is known if it is written out, there or in a merged dictionary (`{**common, "a": 1}`), even a filtered one.
    No value is known of a dictionary that a statement changes, unless it only sets keys other than `name`.
    """
    node = _unfiltered(tree, node, name)
    source, is_whole = tree.value(node), True
    changed = [_changed(tree, use) for use in tree.loads(node.value)] if isinstance(node, cst.Name) else []
    is_changed = any(key is not None and (key is ... or name in (None, key)) for key in changed)
    entries: dict[object, Passed] = {}
    for key, value in [(..., source)] if is_changed or not depth else _items(tree, source):
        taken, all_known = {key: Passed(value, source)}, True
        if key is _TAKEN_IN:
            taken, all_known = entries_of(tree, value, name, depth - 1)
        elif key is ...:
            taken, all_known = {}, False
        entries, is_whole = (entries if all_known else {}) | taken, is_whole and all_known
    return entries, is_whole


def _items(tree: Tree, source: cst.BaseExpression) -> list[tuple[object, cst.BaseExpression]]:
    """Return the keys and values of a dictionary, `...` for an unknown key; later items override earlier ones."""
    if isinstance(source, cst.Call) and tree.qualified(source.func) == "dict":
        ordered = sorted(source.args, key=lambda a: (a.keyword is not None, a.star))
        return [(_TAKEN_IN if a.keyword is None else a.keyword.value, a.value) for a in ordered]
    if isinstance(source, cst.BinaryOperation) and isinstance(source.operator, cst.BitOr):
        return [(_TAKEN_IN, source.left), (_TAKEN_IN, source.right)]
    if isinstance(source, cst.Dict):
        return [
            (tree.literal(e.key) if isinstance(e, cst.DictElement) else _TAKEN_IN, e.value) for e in source.elements
        ]
    return [(..., source)]


def _unfiltered(tree: Tree, node: cst.BaseExpression, name: str | None) -> cst.BaseExpression:
    """Return `given` for `{k: v for k, v in given.items() if k in known}` if no test names `name`; else the node."""
    source = tree.value(node)
    if not isinstance(source, cst.DictComp) or source.for_in.inner_for_in is not None:
        return node
    loop, pair = source.for_in, f"{tree.text(source.key)}, {tree.text(source.value)}"
    texts = [tree.literal(text) for test in loop.ifs for text in tree.within(test, cst.SimpleString)]
    if not isinstance(loop.iter, cst.Call) or tree.text(loop.target).strip("()") != pair or name in texts:
        return node
    items = loop.iter.func
    return items.value if isinstance(items, cst.Attribute) and items.attr.value == "items" else node


def _changed(tree: Tree, use: cst.Name) -> object:
    """Return the key that a use of a dictionary changes (`k["a"] = 1`): `...` for any key, None for no change."""
    part, above = tree.parents[use], tree.parents[tree.parents[use]]
    if isinstance(part, cst.Attribute):
        return ... if part.attr.value in ("update", "setdefault", "pop", "clear") else None
    if not isinstance(part, cst.Subscript) or not isinstance(above, (cst.AssignTarget, cst.AugAssign, cst.Del)):
        return None
    index = part.slice[0].slice
    return tree.literal(index.value) if isinstance(index, cst.Index) else ...
