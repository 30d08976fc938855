"""Read notebooks saved as Python scripts: jupytext reads percent scripts and others with cells."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from nb2ddp.notebook.ipynb import BLOCK, Cell, CellKind, Notebook, read_metadata
from nb2ddp.results import NotebookError

_PERCENT = re.compile(r"^# ?%%(?!\w)", re.MULTILINE)
_JUPYTEXT = re.compile(r"\A# ---\n(?:#.*\n)*?#\s+jupytext:")
_HEADER = re.compile(r"\A(#!.*)?\n?(#.*coding[:=].*)?")
#: The first cell of the scripts that this program writes.
_OWN = re.compile(r"^# %% Distributed setup$", re.MULTILINE)

_Lines = list[tuple[int, str]]


def is_script(text: str) -> bool:
    """Return whether a text is a script with cells; False for one that this program wrote."""
    return not _OWN.search(text) and bool(_PERCENT.search(text) or _JUPYTEXT.search(text))


def parse_script(text: str, name: str) -> Notebook:
    """Parse the text of a script with cells.

    Args:
        text: the file's content, with `\\n` as line ends, for which `is_script` is true.
        name: the notebook's name in the script's first line.

    Raises:
        NotebookError: its header is not valid, or jupytext cannot read it.
    """
    kept = [(kind, _trimmed(lines)) for kind, lines in _cells(text)]
    cells = [
        Cell(number, kind, "\n".join(line for _, line in lines), tuple(at for at, _ in lines), indent=0)
        for number, (kind, lines) in enumerate((each for each in kept if each[1]), start=1)
    ]
    return Notebook(name, tuple(cells), read_metadata(text))


def _trimmed(lines: _Lines) -> _Lines:
    """Return lines without blank ones at the start and the end."""
    text = [number for number, (_, line) in enumerate(lines) if line.strip()]
    return lines[text[0] : text[-1] + 1] if text else []


def _without_header(text: str) -> str:
    """Return a script with blank lines in place of the interpreter, the encoding and the inline metadata."""

    def blank(match: re.Match[str]) -> str:
        is_ours = match.groupdict().get("type", "script") == "script"  # not a block of another tool
        return "\n" * match[0].count("\n") if is_ours else match[0]

    end = next((cell.start() for cell in _PERCENT.finditer(text) if text[: cell.start()].strip()), len(text))
    return _HEADER.sub(blank, BLOCK.sub(blank, text[:end])) + text[end:]


def _cells(text: str) -> Iterator[tuple[CellKind, _Lines]]:
    """Yield the cells as jupytext reads them.

    Magics are restored only if a jupytext header shows that jupytext commented them out: in a script that a person
    wrote, `# !rm -r outputs` is a comment.
    """
    import jupytext

    options: dict[str, Any] = {"extension": ".py"}
    if not _JUPYTEXT.match(text):
        options |= {"format_name": "percent", "comment_magics": False}
        text = _without_header(text)
    try:
        cells = jupytext.reads(text, options).cells
    except Exception as error:  # its many formats and YAML may raise anything
        raise NotebookError(f"not a notebook: jupytext cannot read it ({error})") from None
    file = text.split("\n")
    at = 0
    for cell in cells:
        lines, at = _found(cell.source.split("\n"), file, at)
        yield cell.cell_type, lines


def _found(source: list[str], file: list[str], at: int) -> tuple[_Lines, int]:
    """Return a cell's lines with their numbers in the file: the next lines with the same text, commented or not."""
    lines = []
    for line in source:
        wanted = line.strip().lstrip("# ")
        if wanted:
            same = (n for n in range(at, len(file)) if file[n].strip().lstrip("# ") == wanted)
            at = next(same, at - 1) + 1
        elif at < len(file) and not file[at].strip(" #"):
            at += 1
        lines.append((max(at, 1), line))
    return lines, at
