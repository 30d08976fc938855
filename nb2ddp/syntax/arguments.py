"""The arguments of a call, in the call itself or in a dictionary that it unpacks."""

from __future__ import annotations

from dataclasses import dataclass

import libcst as cst

from nb2ddp.syntax.tree import Tree, keyword

#: In place of a key: all of another dictionary.
_TAKEN_IN = object()


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
    unpacked = (entry(tree, argument.value, name) for argument in call.args if argument.star == "**")
    return next((passed for passed in unpacked if passed is not None), None)


def constant(tree: Tree, call: cst.Call, name: str) -> object:
    """The constant that a call is passed under a keyword, see `passed`: `...` for any other value, None for none."""
    argument = passed(tree, call, name)
    return None if argument is None else tree.literal(argument.value)


def entry(tree: Tree, node: cst.BaseExpression, name: str) -> Passed | None:
    """The value under a key of a dictionary that the notebook writes out, and the `{...}` or `dict(...)` around it."""
    return entries_of(tree, node, name)[0].get(name)


def is_closed(tree: Tree, call: cst.Call) -> bool:
    """True where every argument of a call is written out: nothing else can come in by `**`."""
    return all(entries_of(tree, argument.value)[1] for argument in call.args if argument.star == "**")


def entries_of(
    tree: Tree, node: cst.BaseExpression, name: str | None = None, depth: int = 8
) -> tuple[dict[object, Passed], bool]:
    """The values of the dictionary that an expression stands for, by their keys, and whether these are all.

    Known is what is written out, there or in a dictionary that is taken in (`{**common, "a": 1}`), also where it is
    filtered. Of a dictionary that a statement changes nothing is, but where it sets other keys than `name`.
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
    """The keys and values of a dictionary, of which the later hold: `...` for an unknown key."""
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
    """`given` of `{k: v for k, v in given.items() if k in known}`, where no test is for `name`; else the expression."""
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
    """The key that a statement changes in the dictionary of a name: `k["a"] = 1`; `...` for any, None for none."""
    part, above = tree.parents[use], tree.parents[tree.parents[use]]
    if isinstance(part, cst.Attribute):
        return ... if part.attr.value in ("update", "setdefault", "pop", "clear") else None
    if not isinstance(part, cst.Subscript) or not isinstance(above, (cst.AssignTarget, cst.AugAssign, cst.Del)):
        return None
    index = part.slice[0].slice
    return tree.literal(index.value) if isinstance(index, cst.Index) else ...
