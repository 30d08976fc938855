"""Refuse code that the parser cannot read safely.

LibCST's native parser ends the process if code nests too deeply for its stack, and takes minutes for an expression of
about ten thousand operators (measured with LibCST 1.9).
"""

from __future__ import annotations

import ast
import re
import warnings

#: The most levels of a tree: an operator adds one, an `elif` two.
LEVELS = 1000
#: The most `elif` branches of one `if`: several functions of this package recurse for each branch.
BRANCHES = 150
#: Code with no more brackets, and no more characters without a separator, cannot exceed these limits.
_BRACKETS, _CHARACTERS = 200, 1000

_SEPARATOR = re.compile(r"[,;\n]")
_BRANCH = re.compile(r"^([ \t]*)(if|elif)\b", re.MULTILINE)


def excess(source: str) -> tuple[int, str] | None:
    """Return the line (from 1) where code exceeds a limit, and the limit; None if it exceeds none.

    Args:
        source: Python code, with IPython forms already masked.
    """
    branches: dict[str, int] = {}
    for match in _BRANCH.finditer(source):
        indent, word = match.groups()
        branches[indent] = branches.get(indent, 0) + 1 if word == "elif" else 0
        if branches[indent] > BRANCHES:
            return source.count("\n", 0, match.start()) + 1, f"an `if` of more than {BRANCHES} branches"
    long = next((part for part in _SEPARATOR.split(source) if len(part) > _CHARACTERS), "")
    if not long and sum(map(source.count, "([{")) <= _BRACKETS:
        return None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # warnings on escapes in the notebook's strings
            level: list[ast.AST] = [ast.parse(source)]
    except SyntaxError as error:
        if "too many nested" in error.msg:
            return error.lineno or 1, f"more than {_BRACKETS} brackets are open"
        if sum(map(long.count, "([{")) <= LEVELS:
            return None
        level = []  # not Python, but LibCST would take minutes to reject it
    except (RecursionError, MemoryError):
        level = []
    for _ in range(LEVELS):
        if level and not (level := [child for node in level for child in ast.iter_child_nodes(node)]):
            return None
    return source.count("\n", 0, source.find(long)) + 1, f"an expression of more than {LEVELS} levels"
