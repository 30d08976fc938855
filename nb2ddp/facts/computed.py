"""Texts that the machine on which a script runs decides, and their code: `os.path.expanduser("~/hf")`."""

from __future__ import annotations

import ast
from collections.abc import Sequence

import libcst as cst

from nb2ddp.facts.flow import owner_of
from nb2ddp.facts.shell import quoted
from nb2ddp.syntax.tree import Tree, method

#: What makes a text of others, and is the same in each folder.
_OF_TEXTS = frozenset(f"os.path.{name}" for name in ("join", "expanduser", "normpath", "dirname", "basename"))
#: What makes a path of texts, or a text of a path.
_OF_PATHS = frozenset({"pathlib.Path", "os.fspath", "str"})


class Code(str):
    """The code of a text, which needs the module `os` alone."""

    __slots__ = ()


def computed(tree: Tree, node: cst.BaseExpression) -> object:
    """What an expression of constants and of the user's folder gives: a text, or its `Code`; `...` for any other."""
    code = _code(tree, node, ())
    try:
        return ast.literal_eval(code)
    except (SyntaxError, ValueError):
        return Code(code) if code else ...


def _code(tree: Tree, node: cst.BaseExpression, around: tuple[cst.CSTNode, ...]) -> str:
    value, literal = tree.value(node), tree.literal(node)
    if literal is not ... or value in around:
        return quoted(literal) if isinstance(literal, str) else ""

    def made(before: str, nodes: Sequence[cst.BaseExpression], after: str, between: str = ", ") -> str:
        codes = [_code(tree, each, (*around, value)) for each in nodes]
        return f"{before}{between.join(codes)}{after}" if codes and all(codes) else ""

    if isinstance(value, cst.BinaryOperation) and isinstance(value.operator, cst.Add):
        return made("", (value.left, value.right), "", " + ")
    if isinstance(value, cst.BinaryOperation) and isinstance(value.operator, cst.Divide):
        return made("os.path.join(", (value.left, value.right), ")")
    if isinstance(value, cst.FormattedString):
        parts = [_part(tree, each, (*around, value)) for each in value.parts]
        return " + ".join(parts) if all(parts) else ""
    if not isinstance(value, cst.Call) or any(each.keyword or each.star for each in value.args):
        return ""
    called, given, owner = tree.qualified(value.func), [each.value for each in value.args], owner_of(value)
    if called == "pathlib.Path.home":
        return 'os.path.expanduser("~")'
    if called in _OF_TEXTS:
        return made(f"{called}(", given, ")")
    if called in _OF_PATHS:
        number = tree.literal(given[0]) if given else ...
        is_number = called == "str" and isinstance(number, (int, float))
        if is_number or not given[1:]:
            return quoted(str(number)) if is_number else made("", given, "")
        return made("os.path.join(", given, ")")
    if owner is not None and method(value) == "expanduser" and not given:
        return made("os.path.expanduser(", (owner,), ")")
    separator = tree.literal(owner) if owner is not None and method(value) == "join" and len(given) == 1 else ...
    listed = tree.value(given[0]) if isinstance(separator, str) else None
    if isinstance(separator, str) and isinstance(listed, (cst.List, cst.Tuple)):
        texts = [tree.literal(each.value) for each in listed.elements]
        known = [text for text in texts if isinstance(text, str)]
        if known == texts:
            return quoted(separator.join(known))
        return made(f"{quoted(separator)}.join([", [each.value for each in listed.elements], "])")
    return ""


def _part(tree: Tree, part: cst.BaseFormattedStringContent, around: tuple[cst.CSTNode, ...]) -> str:
    """The code of a part of an f-string."""
    if isinstance(part, cst.FormattedStringExpression):
        return "" if part.conversion or part.format_spec else _code(tree, part.expression, around)
    text = tree.text(part)
    return "" if {"\\", "{", "}"} & set(text) else quoted(text)
