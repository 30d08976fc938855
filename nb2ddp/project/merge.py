"""Merge a person's edits of a script with the new conversion: a three-way merge, like git's.

It needs no git, so it is the same on every machine. Changes of neighbouring lines, such as two arguments of one call,
do not conflict, as they would in git.
"""

from __future__ import annotations

import ast
import re
import tokenize
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from difflib import SequenceMatcher
from io import StringIO
from itertools import accumulate, chain, groupby

from nb2ddp.script import stamp

#: The first line of a cell: code, with its number, or text.
_HEADER = re.compile(r"^# %% (.*)$", re.MULTILINE)
_CODE = re.compile(r"^# %% Cell (\d+)$", re.MULTILINE)
#: Ends each cell during a merge, so that lines added at the end of one never meet lines added before the next.
_END = "\x1eend of {}\x1e\n"
_ENDS = re.compile("\x1eend of [^\x1e]*\x1e\n")
#: Two cells are versions of one cell if their similarity, from 0 to 1, is higher.
_SAME_CELL = 0.4
#: Tokens that have no text.
_BLANK = (tokenize.NEWLINE, tokenize.NL, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER)
#: The meaning of a piece of code, and its text.
_Part = tuple[str, str]
#: Number and code of a cell.
_Cell = tuple[str, str]
_Lines = list[str]
#: The lines that nb2ddp wrote, the person's version of them, and the new conversion's.
_Region = tuple[_Lines, _Lines, _Lines]


@dataclass(frozen=True)
class Conflict:
    """Lines that both sides changed, each in its own way."""

    line: int  #: where it begins in the edited file, from 1
    cell: str  #: the number of the cell in the merged script; empty before the first
    text: str  #: both sides and what was there before, between git's markers


@dataclass(frozen=True)
class Merged:
    """The merged text, valid only without conflicts, and the conflicts."""

    text: str
    conflicts: tuple[Conflict, ...] = ()


def merge(base: str, edited: str, converted: str, side: str = "") -> Merged:
    """Carry a person's edits over to a new conversion.

    Cells are matched even if their numbers changed. The new conversion's version is taken of the line `convert again:`
    and of a statement of which only the format was edited, as by `ruff format`.

    Args:
        base: the file as nb2ddp wrote it.
        edited: the file with a person's edits.
        converted: the new conversion.
        side: whose lines to take in a conflict: `mine` (the person's), `new` (the notebook's), or empty.
    """
    numbers, unformatted = _renumbering(base, converted), _unformatted(base, edited)
    texts = (_prepared(base, numbers), _prepared(unformatted, numbers), _prepared(converted, {}))
    merged: _Lines = []
    passed: _Lines = []
    conflicts: list[Conflict] = []
    for region in _regions(*(text.split("\n") for text in texts)):
        for was, mine, new in _split(*region):
            both = _both(was, mine, new)
            if both is None and side:
                both = mine if side == "mine" else new
            if both is None:
                line = _same_line(unformatted, edited, _line_behind(passed, unformatted))
                conflicts.append(Conflict(line, _cell_of(merged), _shown(was, mine, new)))
            merged += both or []
            passed += mine
    return Merged(stamp.copy(converted, _ENDS.sub("", "\n".join(merged))), tuple(conflicts))


def _unformatted(base: str, edited: str) -> str:
    """Return edited code in the format of `base`, where both have the same meaning."""
    try:
        old, new = _statements(base), _statements(edited)
    except (SyntaxError, tokenize.TokenError):
        return edited
    return "".join(
        "".join(before) if is_equal else _reformed("".join(before), "".join(after))
        for is_equal, before, after in _compared(old, new)
    )


def _reformed(old: str, new: str) -> str:
    """Return new code, with the old format of the tokens that it shares with the old code."""
    try:
        text = ""
        for is_equal, before, after in _compared(_tokens(old), _tokens(new)):
            if is_equal and text:
                before[0] = after[0]  # it now follows another token: keep the space
            elif before and after:
                after[0] = before[0].replace(before[0].strip(), after[0].strip())
            text += "".join(before if is_equal else after)
        return text if _meaning(ast.parse(text), text) == _meaning(ast.parse(new), new) else new
    except (SyntaxError, tokenize.TokenError):
        return new


def _compared(old: list[_Part], new: list[_Part]) -> Iterator[tuple[bool, list[str], list[str]]]:
    """Yield runs of parts, as text: whether both sides mean the same, the old parts and the new parts."""
    matcher = SequenceMatcher(None, [meaning for meaning, _ in old], [meaning for meaning, _ in new], autojunk=False)
    for tag, start, end, new_start, new_end in matcher.get_opcodes():
        yield tag == "equal", [text for _, text in old[start:end]], [text for _, text in new[new_start:new_end]]


def _statements(code: str) -> list[_Part]:
    """Cut code after each top-level statement.

    Raises:
        SyntaxError, tokenize.TokenError: it is not Python.
    """
    data, start = code.encode(), 0
    parts: list[_Part] = []
    lines = list(accumulate(map(len, data.splitlines(keepends=True)), initial=0))
    for statement in ast.parse(code).body:
        end = lines[(statement.end_lineno or 0) - 1] + (statement.end_col_offset or 0)
        text = data[start:end].decode()
        parts.append((_meaning(statement, text), text))
        start = end
    rest = data[start:].decode()
    return [*parts, (_meaning(ast.Module(body=[], type_ignores=[]), rest), rest)]


def _meaning(tree: ast.AST, code: str) -> str:
    """Return the meaning and the comments of code, independent of its format."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            node.value.value = " ".join(node.value.value.split())  # a docstring
    comments = [meaning for meaning, text in _tokens(code) if text.lstrip().startswith("#")]
    return "\n".join([ast.dump(tree), *comments])


def _tokens(code: str) -> list[_Part]:
    """Cut code after each token, which includes the text before it, also a comma before a bracket."""
    lines = list(accumulate((len(line) + 1 for line in code.split("\n")), initial=0))
    parts: list[_Part] = []
    start, previous = 0, ""
    for token in tokenize.generate_tokens(StringIO(code).readline):
        if token.type in _BLANK:
            continue
        if previous == "," and token.string in ("]", ")", "}"):
            start -= len(parts.pop()[1])
        end = lines[token.end[0] - 1] + token.end[1]
        previous = token.string
        parts.append((previous.replace("'", '"').lstrip("# ").rstrip(), code[start:end]))
        start = end
    return [*parts, ("", code[start:])]


def _renumbering(base: str, converted: str) -> dict[str, str]:
    """Return the new number of each cell; a removed cell keeps its number, marked."""
    old, new = _cells(base), _cells(converted)
    numbers = {number: f"{number} (removed)" for number, _ in old}
    matcher = SequenceMatcher(None, [text for _, text in old], [text for _, text in new], autojunk=False)
    for tag, start, end, new_start, new_end in matcher.get_opcodes():
        before, after = old[start:end], new[new_start:new_end]
        pairs = zip(before, after, strict=True) if tag == "equal" else _alike(before, after)
        numbers.update({cell[0]: its_like[0] for cell, its_like in pairs})
    return numbers


def _cells(text: str) -> list[_Cell]:
    parts = _CODE.split(text)
    codes = (_HEADER.split(part)[0].strip("\n") for part in parts[2::2])
    return list(zip(parts[1::2], codes, strict=True))


def _alike(old: list[_Cell], new: list[_Cell]) -> Iterator[tuple[_Cell, _Cell]]:
    """Pair changed cells with their new versions: one to one if equally many, else the most similar that follows."""
    if len(old) == len(new):
        yield from zip(old, new, strict=True)
        return
    start = 0
    for cell in old:
        texts = ((cell[1].split("\n"), each[1].split("\n")) for each in new[start:])
        ratios = [SequenceMatcher(None, *pair, autojunk=False).ratio() for pair in texts]
        best = max(ratios, default=0.0)
        if best > _SAME_CELL:
            place = start + ratios.index(best)
            yield cell, new[place]
            start = place + 1


def _prepared(text: str, numbers: dict[str, str]) -> str:
    """Return a text without its signed line, with renumbered cells and an end marker in each, before a blank line."""
    parts = _HEADER.split(stamp.unsigned(text))
    lines = []
    for place, (title, code) in enumerate(zip(["", *parts[1::2]], parts[::2], strict=True), start=1):
        kind, _, number = title.rpartition(" ")
        new = f"{kind} {numbers.get(number, number)}" if kind == "Cell" else title
        core = code.rstrip("\n")
        blank = code[len(core) + 1 :] or ("\n" if place < len(parts[::2]) else "")  # a person may have removed it
        lines += [f"# %% {new}" if title else "", core, "\n", _END.format(new), blank]
    return "".join(lines)


def _regions(was: _Lines, mine: _Lines, new: _Lines) -> Iterator[_Region]:
    """Cut three texts at the lines that all contain: the part before each such line, then the line."""
    to_mine, to_new = _matched(was, mine), _matched(was, new)
    starts = (0, 0, 0)
    for line in sorted(to_mine.keys() & to_new.keys()):
        ends = (line, to_mine[line], to_new[line])
        yield was[starts[0] : line], mine[starts[1] : ends[1]], new[starts[2] : ends[2]]
        yield (was[line : line + 1],) * 3
        starts = (line + 1, ends[1] + 1, ends[2] + 1)


def _matched(one: _Lines, other: _Lines) -> dict[int, int]:
    """Return the positions of common lines in one text, with those in the other; the last entry is both ends."""
    blocks = SequenceMatcher(None, one, other, autojunk=False).get_matching_blocks()
    return {start + n: other_start + n for start, other_start, size in blocks for n in range(size or 1)}


def _both(was: _Lines, mine: _Lines, new: _Lines) -> _Lines | None:
    """Return the lines with both sides' changes; None if these conflict."""
    if mine == new or was == mine or _holds(was, mine, new):
        return new
    return mine if was == new or _holds(was, new, mine) else None


def _holds(was: _Lines, one: _Lines, other: _Lines) -> bool:
    """True if one side contains all changes of the other."""
    kept = _matched(was, one)
    gone, written = {*range(len(was))} - kept.keys(), {*range(len(one))} - {*kept.values()}
    added = Counter(one) - Counter(was)
    if added.total() != len(written) or (Counter(was) - Counter(one)).total() != len(gone):
        return False  # some line was moved
    is_left_out = gone.isdisjoint(_matched(was, other))
    return is_left_out and added <= Counter(other) - Counter(was) and written <= _matched(one, other).keys()


def _split(was: _Lines, mine: _Lines, new: _Lines) -> Iterator[_Region]:
    """Split a region by lines if both sides only replaced lines; else yield it unchanged.

    So changes of neighbouring lines do not conflict.
    """
    if _both(was, mine, new) is not None or not (_keeps_lines(was, mine) and _keeps_lines(was, new)):
        yield was, mine, new
        return
    lines = ((was[n : n + 1], mine[n : n + 1], new[n : n + 1]) for n in range(len(was)))
    for is_conflict, run in groupby(lines, lambda line: _both(*line) is None):
        if is_conflict:
            olds, mines, news = zip(*run, strict=True)
            yield list(chain(*olds)), list(chain(*mines)), list(chain(*news))
        else:
            yield from run


def _keeps_lines(was: _Lines, other: _Lines) -> bool:
    """True if each changed line was replaced by one line."""
    return all(line == place for line, place in _matched(was, other).items())


def _line_behind(passed: _Lines, edited: str) -> int:
    """Return the number, in the edited file, of the line after some prepared lines."""
    number = len(_ENDS.sub("", "\n".join([*passed, ""])).split("\n"))
    signed = edited.partition(stamp.line(edited) or edited)[0].count("\n") + 1
    return number + (bool(stamp.line(edited)) and number >= signed)


def _same_line(text: str, other: str, number: int) -> int:
    """Return the number of a text's line in another version of the text, or of the line that it became."""
    lines = other.split("\n")
    matched = _matched(text.split("\n"), lines)
    line = max((each for each in matched if each < number), default=-1)
    # Below the last common line, which is -1 if there is none: at most one line, where two versions differ.
    return min(matched.get(line, -1) + min(number - line, 2), len(lines) + 1)


def _cell_of(lines: _Lines) -> str:
    """Return the number of the code cell in which lines end; empty before the first."""
    return next((match[1] for line in reversed(lines) if (match := _CODE.match(line))), "")


def _shown(was: _Lines, mine: _Lines, new: _Lines) -> str:
    sides = ["<<<<<<< edited", *mine, "||||||| as it was written", *was, "=======", *new, ">>>>>>> converted now"]
    return _ENDS.sub("", "\n".join(sides))
