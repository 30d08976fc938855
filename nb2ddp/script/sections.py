"""The cells of a notebook that stand in its script."""

from __future__ import annotations

import re

import libcst as cst

from nb2ddp.facts.program import Program
from nb2ddp.notebook.ipynb import Cell

#: A line that Markdown draws; the heading of a section.
_RULE = re.compile(r"^[ \t]*(?:-{3,}|\*{3,}|_{3,})[ \t]*$", re.M)
_HEADING = re.compile(r"(#{1,6})[ \t].*")
#: The first sentence of a text.
_SENTENCE = re.compile(r"(?s).+?(?:(?<=[.!?:])(?=\s)|(?=\n\s*\n)|(?=\n[*-] )|\Z)")
#: What a text says that is about installing; what names a section in which packages are installed, among others.
_INSTALL = re.compile(r"(?i)\binstall|\bpip\b|\brestart\w*\b[^.\n]*\b(?:runtime|kernel|session)\b")
_PACKAGES = re.compile(rf"{_INSTALL.pattern}|dependenc|requirement|package|librar|\bset ?up\b|environment")
#: What an install serves: `to enable ...`, `for training`.
_PURPOSE = re.compile(r"(?<=\s)(?:to|for|so|that|which)\s.*", re.S)
#: What such a text may speak of besides, and what it then stays for.
_MORE = re.compile(r"(?i)import|load|data|model|config|train|tun(?:e|ing)|check|mount|seed|\bset ?up\b|environment")
_WANTED = re.compile(
    r"(?i)token|secret|password|\bkeys?\b|log ?in|https?://\S*(?:datasets?[/.]|kaggle\.com|drive\.google)"
)
#: The words of a text that says no more than how and why something is installed.
_FEW = 80


def kept_cells(program: Program, cells: dict[int, str]) -> list[Cell]:
    """The cells that stand in the script: none whose code is gone, none without text, and no text on such cells alone.

    That is the heading of a section of which no code is left, and what speaks of the installation right below: in a
    line, also where imports are left of it. The first cell stays as the title of all, unless it is a line about an
    installation.
    """
    filled = [cell for cell in program.notebook.cells if cell.source.strip()]
    kept: list[Cell] = []
    is_gone = is_import = False  # the code right below; all of it but imports
    for cell in reversed(filled):
        if cell.kind == "code" and not cells[cell.number].strip("\n"):
            is_gone = True
        elif not (
            cell.kind == "markdown"
            and ((is_gone and _is_idle(cell, kept, is_title=cell is filled[0])) or (is_import and _is_line(cell, kept)))
        ):
            kept.append(cell)
            is_gone, is_import = False, cell.kind == "code" and _is_import(program, cell, cells[cell.number])
    return kept[::-1]


def _is_idle(cell: Cell, below: list[Cell], *, is_title: bool) -> bool:
    """True for a text right above code that is gone which speaks of that alone.

    Args:
        cell: the text.
        below: the cells that stand below it, in reverse.
        is_title: no cell stands above it.
    """
    text = _plain(cell)
    heading = _HEADING.match(text)
    ends = heading is not None and _ends(heading[1], below)
    if is_title:
        return _is_about(_PACKAGES if ends else _INSTALL, text)
    title = heading[0] if heading else _first_sentence(text)
    rest = text[len(title) :].strip()
    if heading and ends and not rest:
        return True
    install = _INSTALL.search(title)
    if _WANTED.search(text) or len(text.split()) > _FEW or re.search(rf"^{_HEADING.pattern}", rest, re.M):
        return False
    if heading and ends:
        return bool(install or (_PACKAGES.search(title) and _INSTALL.search(_first_sentence(rest))))
    return install is not None and not _MORE.search(title[: install.end()] + _PURPOSE.sub("", title[install.end() :]))


def _is_line(cell: Cell, below: list[Cell]) -> bool:
    """True for a line about an installation, where it is the heading of no more than the cell right below."""
    text = _plain(cell)
    heading = _HEADING.match(text)
    return _is_about(_INSTALL, text) and (heading is None or _ends(heading[1], below[:-1]))


def _is_about(says: re.Pattern[str], text: str) -> bool:
    """True for one line that says such a thing, and speaks of nothing else."""
    return "\n" not in text and says.search(text) is not None and not _MORE.search(text)


def _is_import(program: Program, cell: Cell, left: str) -> bool:
    """True for a cell that installs, of which only imports are left."""
    lines = program.lines_of(cell.number)
    kept = [line for line in lines if not program.installs.covers(line)]
    parts = [part for line in kept for part in (line.body if isinstance(line, cst.SimpleStatementLine) else [line])]
    is_less = len(kept) < len(lines) and left != cell.source
    return is_less and bool(parts) and all(isinstance(part, (cst.Import, cst.ImportFrom)) for part in parts)


def _plain(cell: Cell) -> str:
    """The text of a cell, without the lines that Markdown draws."""
    return _RULE.sub("", cell.source).strip()


def _first_sentence(text: str) -> str:
    found = _SENTENCE.match(text)
    return found[0] if found else ""


def _ends(marks: str, below: list[Cell]) -> bool:
    """True where a section, whose heading has that many `#`, has no cell of those below it, which are in reverse."""
    heading = _HEADING.match(_plain(below[-1])) if below and below[-1].kind == "markdown" else None
    return not below or (heading is not None and len(heading[1]) <= len(marks))
