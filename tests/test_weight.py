"""Limit the weight of each room of the package to its current value. A limit only falls.

Weight is the number of names, operators, numbers and strings in the code. Comments and docstrings have no weight, and
denser lines weigh the same. `python -m tests.test_weight` lowers the numbers in tests/weight.json to the current
weights of the rooms, and raises none.
"""

from __future__ import annotations

import ast
import io
import json
import tokenize
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parent.parent
LIMITS = Path(__file__).with_name("weight.json")
WEIGHING = {tokenize.NAME, tokenize.OP, tokenize.NUMBER, tokenize.STRING}


def weight(source: str) -> int:
    """Return the number of tokens of a module that have weight."""
    free: set[int] = set()
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Module() | ast.ClassDef() | ast.FunctionDef() | ast.AsyncFunctionDef() if ast.get_docstring(node):
                first = node.body[0]
            case _:
                continue
        free.update(range(first.lineno, (first.end_lineno or first.lineno) + 1))
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    return sum(token.type in WEIGHING and token.start[0] not in free for token in tokens)


def rooms() -> Counter[str]:
    """Return the weight of each room. The modules beside the folders are one room."""
    found: Counter[str] = Counter()
    for path in sorted((ROOT / "nb2ddp").rglob("*.py")):
        found["/".join(path.relative_to(ROOT).parts[:-1][:2])] += weight(path.read_text(encoding="utf-8"))
    return found


def limits() -> dict[str, int]:
    numbers: dict[str, int] = json.loads(LIMITS.read_text(encoding="utf-8"))
    return numbers


def test_no_room_grows() -> None:
    allowed = limits()
    heavier = [
        f"{room} weighs {now:,} tokens, {now - allowed.get(room, 0):,} more than before"
        for room, now in sorted(rooms().items())
        if now > allowed.get(room, 0)
    ]
    assert not heavier, (
        "\n".join(heavier) + "\nRemove as much elsewhere in the room. If the change needs the code, raise the number"
        " in tests/weight.json, and name in the commit message the notebooks that it changes."
    )


def test_comments_and_docstrings_weigh_nothing() -> None:
    assert weight('"""Text."""\n\n\ndef f(a):  # first\n    """More\n    text."""\n    return a + 1\n') == 10


if __name__ == "__main__":
    kept = limits() if LIMITS.exists() else {}
    lowered = {room: min(now, kept.get(room, now)) for room, now in sorted(rooms().items())}
    LIMITS.write_text(json.dumps(lowered, indent=2) + "\n", encoding="utf-8")
