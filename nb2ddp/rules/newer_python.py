"""DDP007: Quotes in an f-string that need Python 3.12 become other quotes."""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from nb2ddp.facts.program import Program
from nb2ddp.results import Severity
from nb2ddp.rules.rule import Finding, rule
from nb2ddp.syntax.edits import Replace
from nb2ddp.syntax.tree import Tree

_QUOTES = "Python before 3.12 stops at this f-string, whose quotes stand inside it, too; the script uses others inside"
_NEWER = "this f-string needs Python 3.12 or newer, and so does the script: older ones stop with a SyntaxError"
_OTHER = {'"': "'", "'": '"'}


@rule("DDP007")
def newer_python(program: Program) -> Iterator[Finding]:
    tree = program.tree
    for string in tree.of(cst.FormattedString):
        parts = [part for part in string.parts if isinstance(part, cst.FormattedStringExpression)]
        fields = [part.expression for part in parts]
        text = "".join(map(tree.text, fields))
        if "\\" in text or any(tree.within(part, cst.Comment) for part in parts):
            yield Finding(string, _NEWER, severity=Severity.WARNING)
        elif string.end in text:
            edits = _with_other_quotes(tree, fields, string.end)
            said, severity = (_QUOTES, None) if edits else (_NEWER, Severity.WARNING)
            yield Finding(string, said, edits, severity)


def _with_other_quotes(tree: Tree, fields: list[cst.BaseExpression], quote: str) -> tuple[Replace, ...]:
    """The strings in an f-string's fields with the quotes that the f-string does not have; none where that fails."""
    strings = [each for field in fields for each in tree.within(field, cst.SimpleString) if each.quote == quote]
    other = _OTHER.get(quote, quote)
    is_plain = all(other not in each.value for each in strings) and not any(
        tree.within(field, cst.FormattedString) for field in fields
    )
    count = sum(tree.text(field).count(quote) for field in fields)
    if not is_plain or count != 2 * len(strings):
        return ()
    return tuple(Replace(each, each.value.replace(quote, other)) for each in strings)
