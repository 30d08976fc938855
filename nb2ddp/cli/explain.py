"""Print the explanation of a code: a short form of at most one screen, or all of it."""

from __future__ import annotations

import shutil
import textwrap
from collections.abc import Iterator

from click import style

from nb2ddp.cli.docs import difference, shown
from nb2ddp.codes import Code
from nb2ddp.rules.index import KNOWN
from nb2ddp.rules.rule import Example, Rule

#: How many lines the short form takes at most.
LINES = 40
_COLORS = {"+": "green", "-": "red"}


def explained(rule: Rule | Code, *, is_whole: bool = False) -> Iterator[str]:
    """Return the explanation of a rule or a code of the command, as lines.

    Args:
        rule: what to explain.
        is_whole: include all examples.
    """
    width = min(shutil.get_terminal_size().columns, 100)
    head = [style(f"{rule.code} {rule.name}", bold=True), ""]
    for text in (rule.summary, *rule.why.split("\n\n")):
        head += [*textwrap.wrap(text, width, break_long_words=False, break_on_hyphens=False), ""]
    yield from head
    room, left = LINES - len(head) - 1, len(rule.examples)
    for lines in (list(_example(example)) for example in shown(rule)):
        if is_whole or len(lines) <= room:
            yield from lines
            room, left = room - len(lines), left - 1
    if left:
        more = "example" if left == 1 else "examples"
        yield style(f"{left} more {more}: nb2ddp --explain {rule.code} --all", dim=True)


def listed(begin: str = "") -> Iterator[str]:
    """Return a line per code that begins with these letters: code, name, summary."""
    for code, rule in sorted(KNOWN.items()):
        if code.startswith(begin):
            yield f"{code}  {rule.name:<32} {rule.summary}"


def _example(example: Example) -> Iterator[str]:
    if example.after is not None:
        for line in difference(example).split("\n"):
            yield style(f"  {line}", fg=_COLORS.get(line[:1]))
    else:
        yield style("Reported:" if example.reported else "Left alone:", bold=True)
        yield from (f"    {line}" for line in example.before.rstrip("\n").split("\n"))
    yield ""
