"""Refuse code that the parser cannot read safely.

LibCST's native parser ends the process where code nests too deeply for its stack, and takes minutes for an
expression of some ten thousand operators (measured with LibCST 1.9). Python's own compiler has limits of its own.
"""

from __future__ import annotations

import re
import tokenize
from io import StringIO

#: CPython refuses more open brackets than this ("too many nested parentheses").
BRACKETS = 200
#: Tokens in a row with no comma, semicolon or line end between them.
CHAIN = 2000
#: `elif` branches of one `if`: each is a level of the tree, and Python limits recursion.
BRANCHES = 150

_BRACKET = re.compile(r"[()\[\]{}]")
_SEPARATOR = re.compile(r"[,;\n]")
_BRANCH = re.compile(r"^([ \t]*)(if|elif)\b", re.MULTILINE)


def excess(source: str) -> tuple[int, str] | None:
    """Return the line (from 1) where code exceeds a limit, and the limit; None if it exceeds none.

    Args:
        source: Python, IPython forms already masked.
    """
    branches: dict[str, int] = {}
    for match in _BRANCH.finditer(source):
        indent, word = match.groups()
        branches[indent] = branches.get(indent, 0) + 1 if word == "elif" else 0
        if branches[indent] > BRANCHES:
            return source.count("\n", 0, match.start()) + 1, f"an `if` of more than {BRANCHES} branches"
    suspicious = _depth(source) > BRACKETS or any(len(part) > CHAIN for part in _SEPARATOR.split(source))
    return _excess(source) if suspicious else None


def _excess(source: str) -> tuple[int, str] | None:
    depth = chain = 0
    try:
        for token in tokenize.generate_tokens(StringIO(source).readline):
            line, text = token.start[0], token.string
            inside = 0
            if token.type == tokenize.OP:
                depth += (text in "([{") - (text in ")]}")
            elif token.type == tokenize.STRING and "f" in text[: text.index(text[-1])].lower():
                inside = _depth(text)  # before Python 3.12 an f-string is one token, yet its fields are parsed
            chain = 0 if text in (",", ";") or token.type == tokenize.NEWLINE else chain + 1
            if depth + inside > BRACKETS:
                return line, f"more than {BRACKETS} brackets are open"
            if chain > CHAIN:
                return line, f"an expression of more than {CHAIN} tokens"
            if inside and max(map(len, _SEPARATOR.split(text))) > CHAIN * 4:
                return line, "an f-string that is too long"
    except (tokenize.TokenError, SyntaxError):
        if _depth(source) > BRACKETS:
            return 1, f"more than {BRACKETS} brackets are open"
    return None


def _depth(text: str) -> int:
    """Return the largest number of open brackets, including those in strings and comments."""
    depth = deepest = 0
    for match in _BRACKET.finditer(text):
        depth += 1 if match[0] in "([{" else -1
        deepest = max(deepest, depth)
    return deepest
