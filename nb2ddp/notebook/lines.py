"""Where the cells' lines stand in the .ipynb file itself."""

from __future__ import annotations

import bisect
import json
import re
from collections.abc import Callable
from itertools import accumulate
from json import decoder
from typing import Any

_SPACE = re.compile(r"[ \t\r\n]*")
_COLON = re.compile(r"[ \t\r\n]*:[ \t\r\n]*")
_COMMA = re.compile(r"[ \t\r\n]*,?[ \t\r\n]*")
_LINE_END = re.compile(r"\r\n?|\n")
_DECODER: Any = json.JSONDecoder()
#: The value at an offset, and the offset after it: the standard library's own scanners, which are in C.
_scan: Callable[[str, int], tuple[Any, int]] = _DECODER.scan_once
_scan_string: Callable[[str, int], tuple[str, int]] = getattr(decoder, "scanstring")  # noqa: B009 - not in its stub
#: The strings that make up a cell's source, with their offsets.
_Parts = list[tuple[int, str]]


def file_lines(text: str) -> list[list[int]]:
    """The line of the file, from 1, of each line of each cell.

    Args:
        text: a valid .ipynb file, of any version of the format.

    Returns:
        One list for each cell, in order, with one number for each line of its source.
    """
    found, line, at = [], 1, 0
    for parts in _Cells(text).sources:
        lines = []
        for offset in _line_offsets(parts):
            line, at = line + text.count("\n", at, offset), max(at, offset)
            lines.append(line)
        found.append(lines)
    return found


def _line_offsets(parts: _Parts) -> list[int]:
    """The offsets in the file of the strings in which a source's lines begin."""
    if not parts:
        return [0]
    ends = list(accumulate(len(part) for _, part in parts))
    starts = [0, *(match.end() for match in _LINE_END.finditer("".join(part for _, part in parts)))]
    return [parts[min(bisect.bisect_right(ends, start), len(parts) - 1)][0] for start in starts]


class _Cells:
    """One way through a file, on which nothing is decoded twice.

    Attributes:
        sources: the strings of each cell.
    """

    def __init__(self, text: str) -> None:
        self._text = text
        self.sources: list[_Parts] = []
        self._object(_end_of(_SPACE, text, 0), self._notebook)

    def _notebook(self, key: str, at: int) -> int:
        """Take a member of the notebook, or of a worksheet of nbformat 3; the offset behind it."""
        if key == "cells" and self._text[at] == "[":
            return self._array(at, self._cell)
        if key == "worksheets" and self._text[at] == "[":
            return self._array(at, lambda at: self._object(at, self._notebook))
        return _scan(self._text, at)[1]

    def _cell(self, at: int) -> int:
        self.sources.append([])
        return self._object(at, self._field)

    def _field(self, key: str, at: int) -> int:
        """Take a member of the last cell."""
        if key not in ("source", "input"):
            return _scan(self._text, at)[1]
        self.sources[-1] = []
        return self._array(at, self._part) if self._text[at] == "[" else self._part(at)

    def _part(self, at: int) -> int:
        """Take a string of the last cell's source."""
        value, end = _scan(self._text, at)
        if isinstance(value, str):
            self.sources[-1].append((at, value))
        return end

    def _object(self, at: int, take: Callable[[str, int], int]) -> int:
        """Go through an object's members, and hand each on: the offset behind it."""
        text = self._text
        if text[at] != "{":
            return _scan(text, at)[1]
        at = _end_of(_SPACE, text, at + 1)
        while text[at] == '"':
            key, at = _scan_string(text, at + 1)
            at = _end_of(_COMMA, text, take(key, _end_of(_COLON, text, at)))
        return at + 1

    def _array(self, at: int, take: Callable[[int], int]) -> int:
        """Go through an array's elements, and hand each on: the offset behind it."""
        at = _end_of(_SPACE, self._text, at + 1)
        while self._text[at] != "]":
            at = _end_of(_COMMA, self._text, take(at))
        return at + 1


def _end_of(pattern: re.Pattern[str], text: str, at: int) -> int:
    match = pattern.match(text, at)
    return match.end() if match else at
