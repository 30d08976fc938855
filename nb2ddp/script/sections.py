"""The cells of a notebook that stand in its script."""

from __future__ import annotations

import re

from nb2ddp.facts.program import Program
from nb2ddp.notebook.ipynb import Cell

_INSTALL = re.compile(r"(?i)\binstall|\bpip\b|\brestart\w*\b[^.\n]*\b(?:runtime|kernel|session)\b")
#: A text of more words says more than how and why something is installed.
_FEW = 80


def kept_cells(program: Program, cells: dict[int, str]) -> list[Cell]:
    """Return the cells that stand in the script: those with code left or with text.

    A text about an installation leaves with the code right below it; the first cell stays as the title of all.

    Args:
        program: the notebook.
        cells: its rewritten code cells, by number.
    """
    filled = [cell for cell in program.notebook.cells if cell.source.strip()]
    kept: list[Cell] = []
    is_removed = False  # the code right below
    for cell in reversed(filled):
        if cell.kind == "code" and not cells[cell.number].strip("\n"):
            is_removed = True
        elif not (is_removed and cell is not filled[0] and _is_about_install(cell)):
            kept.append(cell)
            is_removed = False
    return kept[::-1]


def _is_about_install(cell: Cell) -> bool:
    """Return whether a text, by its first line, is about an installation."""
    first = cell.source.strip().split("\n", 1)[0]
    return cell.kind == "markdown" and bool(_INSTALL.search(first)) and len(cell.source.split()) <= _FEW
