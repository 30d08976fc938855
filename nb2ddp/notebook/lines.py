"""Where the cells' lines stand in the .ipynb file itself."""

from __future__ import annotations

import bisect
import json
import re
from collections.abc import Callable, Iterator
from itertools import accumulate
from json import decoder
from typing import Any

_SPACE = re.compile(r"[ \t\r\n]*")
_LINE_END = re.compile(r"\r\n?|\n")
_DECODER: Any = json.JSONDecoder()
#: The value at an offset, and the offset after it: the standard library's own scanners, which are in C.
_scan: Callable[[str, int], tuple[Any, int]] = _DECODER.scan_once
_scan_string: Callable[[str, int], tuple[str, int]] = getattr(decoder, "scanstring")  # noqa: B009 - not in its stub


def file_lines(text: str) -> list[list[int]]:
    """The line of the file, from 1, of each line of each cell.

    Args:
        text: a valid .ipynb file, of any version of the format.

    Returns:
        One list for each cell, in order, with one number for each line of its source.
    """
    breaks = [match.start() for match in re.finditer("\n", text)]
    return [
        [bisect.bisect_left(breaks, offset) + 1 for offset in _line_offsets(parts)]
        for parts in _cells(text, _skip(text, 0))
    ]


def _line_offsets(parts: list[tuple[int, str]]) -> list[int]:
    """The offsets in the file of the strings in which a source's lines begin."""
    if not parts:
        return [0]
    ends = list(accumulate(len(part) for _, part in parts))
    starts = [0, *(match.end() for match in _LINE_END.finditer("".join(part for _, part in parts)))]
    return [parts[min(bisect.bisect_right(ends, start), len(parts) - 1)][0] for start in starts]


def _cells(text: str, at: int) -> Iterator[list[tuple[int, str]]]:
    """The strings that make up each cell's source, with their offsets."""
    for key, value in _members(text, at):
        if key == "cells" and text[value] == "[":
            for cell in _elements(text, value):
                yield _source(text, cell)
        elif key == "worksheets" and text[value] == "[":  # nbformat 3
            for worksheet in _elements(text, value):
                yield from _cells(text, worksheet)


def _source(text: str, at: int) -> list[tuple[int, str]]:
    found: list[tuple[int, str]] = []
    for key, value in _members(text, at):
        if key in ("source", "input"):
            places = list(_elements(text, value)) if text[value] == "[" else [value]
            found = [(place, _scan_string(text, place + 1)[0]) for place in places if text[place] == '"']
    return found


def _skip(text: str, at: int) -> int:
    """The offset of what follows white space."""
    match = _SPACE.match(text, at)
    return match.end() if match else at


def _members(text: str, at: int) -> Iterator[tuple[str, int]]:
    """The keys of an object, with the offsets of their values; none where no object stands."""
    if text[at] != "{":
        return
    at = _skip(text, at + 1)
    while text[at] == '"':
        key, at = _scan_string(text, at + 1)
        value = _skip(text, _skip(text, at) + 1)
        yield key, value
        at = _skip(text, _end(text, value))
        if text[at] == ",":
            at = _skip(text, at + 1)


def _elements(text: str, at: int) -> Iterator[int]:
    """The offsets of an array's elements."""
    at = _skip(text, at + 1)
    while text[at] != "]":
        yield at
        at = _skip(text, _end(text, at))
        if text[at] == ",":
            at = _skip(text, at + 1)


def _end(text: str, at: int) -> int:
    return _scan(text, at)[1]
