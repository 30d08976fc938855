"""DDP007: f-strings that only Python 3.12 and newer read."""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from nb2ddp.facts.program import Program
from nb2ddp.rules.rule import Example, Finding, Rule

_NEWER = "this f-string needs Python 3.12 or newer, and so does the script: older ones stop with a SyntaxError"


def find(program: Program) -> Iterator[Finding]:
    tree = program.tree
    for string in tree.of(cst.FormattedString):
        fields = [tree.text(each.expression) for each in tree.within(string, cst.FormattedStringExpression)]
        if any(mark in field for field in fields for mark in (string.end, "\\", "#")):
            yield Finding(string, _NEWER)


RULE = Rule(
    code="DDP007",
    name="newer-python",
    summary="An f-string that needs Python 3.12 or newer is reported.",
    why=(
        "Since Python 3.12 (PEP 701), the fields of an f-string may contain the string's own quotes, backslashes and "
        "comments. The script keeps the notebook's code, so an older Python cannot start it."
    ),
    find=find,
    examples=(
        Example("""print(f"{row["text"]}: {"\\n".join(lines)}")\ntrainer.train()\n""", reported=True),
        Example("""print(f"{row['text']}\\n", f\'\'\'{row["text"]}\'\'\')\ntrainer.train()\n"""),
    ),
)
