"""Merge a person's edits of a script with what its notebook converts to now, by `git merge-file`."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from difflib import SequenceMatcher
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from nb2ddp.script import stamp

#: What a cell begins with: code, by its number, or text.
_HEADER: Final = re.compile(r"^# %% (.*)$", re.MULTILINE)
_CODE: Final = re.compile(r"^# %% Cell (\d+)$", re.MULTILINE)
#: Ends each cell while texts are merged: what is added to the end of one never meets what is added before the next.
_END: Final = "\x1eend of {}\x1e\n"
_ENDS: Final = re.compile("\x1eend of [^\x1e]*\x1e\n")
#: From this similarity on, of 0 to 1, two cells are versions of one.
_SAME_CELL: Final = 0.4
#: Number and code of a cell.
_Cell = tuple[str, str]
_START_OF_CONFLICT: Final = "<<<<<<< "
_END_OF_CONFLICT: Final = ">>>>>>> "


class MergeError(Exception):
    """Texts that cannot be merged at all; the message says why."""


@dataclass(frozen=True)
class Conflict:
    """Lines that both sides changed."""

    cell: str  #: the number of the cell, in the script as it would be; empty before the first
    text: str  #: both sides and what was there before, between git's markers


@dataclass(frozen=True)
class Merged:
    """What becomes of the three texts; with conflicts, its text is of no use."""

    text: str
    conflicts: tuple[Conflict, ...] = ()


def merge(base: str, edited: str, converted: str) -> Merged:
    """Carry a person's edits over to a new conversion.

    Cells are followed though their numbers change, and the line that nb2ddp signs with is the new conversion's.

    Args:
        base: the file as nb2ddp wrote it.
        edited: what a person made of it.
        converted: what the notebook converts to now.

    Raises:
        MergeError: git is not there, or cannot merge these texts.
    """
    numbers = _renumbering(base, converted)
    texts = [_prepared(edited, numbers), _prepared(base, numbers), _prepared(converted, {})]
    text = _ENDS.sub("", _merge_file(texts))
    conflicts = tuple(_conflicts(text))
    return Merged(text if conflicts else stamp.copy(converted, text), conflicts)


def _renumbering(base: str, converted: str) -> dict[str, str]:
    """The new number of each cell; a cell that is gone keeps its own, marked."""
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
    """Cells that were changed, with what they became: as many others, or the most similar one behind the last found."""
    if len(old) == len(new):
        yield from zip(old, new, strict=True)
        return
    start = 0
    for cell in old:
        ratios = [_similarity(cell[1], each[1]) for each in new[start:]]
        best = max(ratios, default=0.0)
        if best > _SAME_CELL:
            place = start + ratios.index(best)
            yield cell, new[place]
            start = place + 1


def _similarity(one: str, other: str) -> float:
    return SequenceMatcher(None, one.split("\n"), other.split("\n"), autojunk=False).ratio()


def _prepared(text: str, numbers: dict[str, str]) -> str:
    """A text without its signed line, its cells renumbered, and with an end to each, before the blank line."""
    parts = _HEADER.split(stamp.unsigned(text))
    lines = []
    for title, code in zip(["", *parts[1::2]], parts[::2], strict=True):
        kind, _, number = title.rpartition(" ")
        new = f"{kind} {numbers.get(number, number)}" if kind == "Cell" else title
        core = code.rstrip("\n")
        lines += [f"# %% {new}" if title else "", core, "\n", _END.format(new), code[len(core) + 1 :]]
    return "".join(lines)


def _merge_file(texts: list[str]) -> str:
    with TemporaryDirectory(prefix="nb2ddp-") as folder:
        names = ["edited", "as it was written", "converted now"]
        for name, text in zip(names, texts, strict=True):
            Path(folder, name).write_bytes(text.encode("utf-8", "surrogateescape"))
        labels = [word for name in names for word in ("-L", name)]
        command = ["git", "merge-file", "--stdout", "--diff3", *labels, *names]
        try:
            done = subprocess.run(command, cwd=folder, capture_output=True, check=False)
        except OSError:
            raise MergeError("git, which merges, is not installed") from None
    if done.returncode > 127:  # below, it counts the conflicts
        raise MergeError(done.stderr.decode("utf-8", "replace").strip() or "git cannot merge the file")
    return done.stdout.decode("utf-8", "surrogateescape")


def _conflicts(text: str) -> Iterator[Conflict]:
    cell = ""
    lines: list[str] = []
    for line in text.split("\n"):
        if match := _CODE.match(line):
            cell = match[1]
        if lines or line.startswith(_START_OF_CONFLICT):
            lines.append(line)
        if lines and line.startswith(_END_OF_CONFLICT):
            yield Conflict(cell, "\n".join(lines))
            lines = []
