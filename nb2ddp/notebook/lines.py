"""A cell's lines, as IPython runs them and as the .ipynb file itself holds them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable

_STRING = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"')
#: A member that may be a cell's source; within a string its quotes would be escaped.
_SOURCE = re.compile(rf'"(?:source|input)"\s*:\s*({_STRING.pattern}|\[(?:\s*{_STRING.pattern}\s*,?)*\s*\])')
_LINE_END = re.compile(r"\r\n?|\n")
#: The blanks before the first code of a cell.
_INDENT = re.compile(r"\s*?^([ \t]+)\S", re.MULTILINE)


def dedented(source: str) -> str:
    """Return a code cell's source without the indent of its first line, which IPython takes from all its lines.

    Source: `leading_indent` of IPython 7 (Colab's). IPython 9 takes what all lines share, which is the same for cells
    that run in both.
    """
    if not (indent := _INDENT.match(source)):
        return source
    return "\n".join(line.removeprefix(indent[1]) for line in source.split("\n"))


def file_lines(text: str, sources: Iterable[str]) -> list[list[int]]:
    """Return the line of the file (from 1) of each line of each cell.

    Args:
        text: a valid .ipynb file, of any version of the format.
        sources: the cells' sources, with `\\n` as line ends; outputs and metadata may have members of the same name.

    Returns:
        One list for each cell, in order, with one number for each line of its source; empty where that is not found.
    """
    written = [_lines(text, *match.span(1)) for match in _SOURCE.finditer(text)]
    places, first, line, at = [], 0, 1, 0
    for source in sources:
        same = (n for n in range(first, len(written)) if source in (written[n][0], dedented(written[n][0])))
        here = next(same, None)
        lines: list[int] = []
        for offset in written[here][1] if here is not None else ():
            line, at = line + text.count("\n", at, offset), max(at, offset)
            lines.append(line)
        places.append(lines)
        first = first if here is None else here + 1
    return places


def _lines(text: str, start: int, end: int) -> tuple[str, list[int]]:
    """Return a member's joined strings, and the offsets of the strings in which its lines begin."""
    strings = [(string.start(), json.loads(string[0])) for string in _STRING.finditer(text, start, end)]
    source = "".join(part for _, part in strings)
    starts = [0, *(match.end() for match in _LINE_END.finditer(source))]
    holders = [at for at, part in strings for _ in part] or [start]  # of each character
    return _LINE_END.sub("\n", source.removeprefix("\ufeff")), [holders[min(at, len(holders) - 1)] for at in starts]
