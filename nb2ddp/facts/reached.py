"""All that some things lead to, step by step."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import TypeVar

Thing = TypeVar("Thing", bound=Hashable)


def reached(starts: Iterable[Thing], onward: Callable[[Thing], Iterable[Thing]]) -> list[Thing]:
    """Some things, what `onward` gives for each of them, what it gives for that, and so on, each once."""
    known: dict[Thing, None] = {}
    pending = list(starts)[::-1]
    while pending:
        thing = pending.pop()
        if thing not in known:
            known[thing] = None
            pending += list(onward(thing))[::-1]
    return list(known)
