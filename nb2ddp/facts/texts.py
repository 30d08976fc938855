"""The texts that expressions stand for, as far as the code tells."""

from __future__ import annotations

import re

import libcst as cst

from nb2ddp.facts.parameters import held_by, passed
from nb2ddp.syntax.tree import Tree

#: What an expression is made of that nothing tells.
_ANY = "*"
#: A name in braces or behind `$`, which IPython fills in.
_FILLED = re.compile(r"(?<!\$)\{([^{}]*)\}|\$([A-Za-z_]\w*)")


def spelled(tree: Tree, node: cst.BaseExpression) -> list[str]:
    """The texts that an expression may stand for, with `*` for what nothing tells."""
    values = _values(tree, node)
    return list(dict.fromkeys(_spelled(tree, value) for value in values)) if values else [_ANY]


def _values(tree: Tree, node: cst.BaseExpression) -> list[cst.BaseExpression]:
    """What an expression stands for; of a parameter, what calls give it; of `self.path`, what its class gives it."""
    value = tree.value(node)
    kept = held_by(tree, value) if isinstance(value, cst.Attribute) else None
    value = value if kept is None else tree.value(kept)
    param = tree.definition(value)
    return [tree.value(each) for each in passed(tree, param)] if isinstance(param, cst.Param) else [value]


def filled(tree: Tree, text: str) -> str:
    """A text with `{name}` and `$name` replaced where the code binds the name once, to a text or a path."""

    def fill(name: re.Match[str]) -> str:
        bound = tree.bindings(name[1] or name[2])
        texts = spelled(tree, bound[0].value) if len(bound) == 1 and bound[0].value is not None else [_ANY]
        return texts[0] if len(texts) == 1 and _ANY not in texts[0] else name[0]

    return _FILLED.sub(fill, text)


def held(tree: Tree, node: cst.BaseExpression) -> cst.BaseExpression:
    """What an expression stands for, through names and entries of dictionaries: `Path("out")` of `paths["out"]`."""

    def inner(node: cst.BaseExpression) -> cst.BaseExpression | None:
        value = tree.value(node)
        key = value.slice[0].slice if isinstance(value, cst.Subscript) else None
        if not isinstance(value, cst.Subscript) or not isinstance(key, cst.Index):
            return None
        whole, name = tree.value(value.value), tree.literal(key.value)
        entries = whole.elements if isinstance(whole, cst.Dict) and name is not ... else ()
        named = [each.value for each in entries if isinstance(each, cst.DictElement) and tree.literal(each.key) == name]
        is_changed = bool(named) and tree.text(value) in map(tree.text, tree.targets(tree.module))
        return named[0] if len(named) == 1 and not is_changed else None

    return tree.value(tree.followed(node, inner)[-1])


def _spelled(tree: Tree, node: cst.BaseExpression, around: tuple[cst.CSTNode, ...] = ()) -> str:
    value = held(tree, node)
    if value in around:  # a name that is made of itself
        return _ANY

    def part(node: cst.BaseExpression) -> str:
        return _spelled(tree, node, (*around, value))

    if isinstance(value, cst.SimpleString):
        return tree.content(value)
    if isinstance(value, cst.FormattedString):
        return "".join(
            tree.text(each)
            if isinstance(each, cst.FormattedStringText)
            else _ANY
            if each.conversion or each.format_spec  # type: ignore[attr-defined]
            else part(each.expression)  # type: ignore[attr-defined]
            for each in value.parts
        )
    if isinstance(value, cst.ConcatenatedString):
        return part(value.left) + part(value.right)
    if isinstance(value, cst.BinaryOperation) and isinstance(value.operator, (cst.Add, cst.Divide)):
        middle = "/" if isinstance(value.operator, cst.Divide) else ""
        return f"{part(value.left)}{middle}{part(value.right)}"
    if isinstance(value, cst.Call) and tree.qualified(value.func) in ("os.path.join", "pathlib.Path", "str"):
        return "/".join(part(each.value) for each in value.args)
    return _ANY
