"""Read a notebook in any supported form, and say how to convert others."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import PurePath
from typing import Final

from nb2ddp.notebook.ipynb import Notebook, parse_notebook
from nb2ddp.notebook.lines import file_lines
from nb2ddp.notebook.marimo import is_marimo, parse_marimo
from nb2ddp.notebook.scripts import is_script, parse_script
from nb2ddp.results import Diagnostic, NotebookError

#: Endings of notebooks that are not read, with what they are and how to get one that is.
OTHER_FORMATS: Final = {
    ".qmd": "a Quarto notebook; `quarto convert {name}` writes an .ipynb",
    ".rmd": "an R Markdown notebook; `jupytext --to ipynb {name}` writes an .ipynb",
    ".md": "a Markdown file; if it is a notebook, `jupytext --to ipynb {name}` writes an .ipynb",
    ".dbc": "a Databricks archive; in Databricks, File > Export > IPython Notebook writes an .ipynb",
    ".html": "a web page; export the notebook itself: in Colab, File > Download > Download .ipynb",
    ".pdf": "a PDF; export the notebook itself: in Colab, File > Download > Download .ipynb",
    ".zip": "an archive; unpack it and name the notebook in it",
}
_DATABRICKS = re.compile(r"\A\s*# Databricks notebook source")
_JSON = re.compile(r"\ufeff?\s*\{\s*\"")
_WEB_PAGE = re.compile(r"\s*<(!doctype|html|head|\?xml)", re.IGNORECASE)
_PYTHON_ENDINGS = (".py", ".pyw", ".ipy")


def read_notebook(text: str, name: str, file_name: str = "") -> Notebook:
    """Read the text of a notebook: .ipynb, marimo, percent script, or a script that Jupyter or Colab wrote.

    Args:
        text: the file's content.
        name: what to call the notebook in the script's first line.
        file_name: the name of the file, whose ending counts where the content leaves it open; empty if unknown.

    Raises:
        NotebookError: it is none of these, with the way to get one of them where there is one.
    """
    ending = PurePath(file_name).suffix.lower()
    if ending in OTHER_FORMATS:
        raise NotebookError(f"not a notebook that is read here: {OTHER_FORMATS[ending].format(name=file_name)}")
    if ending == ".ipynb" or _JSON.match(text):
        return parse_notebook(text, name)
    lines = text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n")
    if is_marimo(lines):
        return parse_marimo(lines, name)
    if is_script(lines):
        return parse_script(lines, name)
    if _DATABRICKS.match(lines):
        raise NotebookError(
            "a Databricks source file; in Databricks, File > Export > IPython Notebook writes an .ipynb"
        )
    if _WEB_PAGE.match(lines):
        raise NotebookError("a web page, not a notebook")
    if ending in _PYTHON_ENDINGS:
        raise NotebookError(
            "a Python file without cells; to convert a script, put a line `# %%` above its first statement"
        )
    return parse_notebook(text, name)


def is_python_notebook(text: str) -> bool:
    """True for a Python file that is a notebook; not for a script that this program wrote."""
    lines = text.replace("\r\n", "\n")
    return is_marimo(lines) or is_script(lines)


def placed(notebook: Notebook, text: str, findings: Iterable[Diagnostic]) -> Iterator[Diagnostic]:
    """Findings with their lines of the file, and the columns where the file's lines are the notebook's own.

    Args:
        notebook: what was read.
        text: the file's content.
        findings: of the notebook.
    """
    written: list[list[int]] = []  # where the file holds cells as JSON
    for finding in findings:
        if finding.location is None:
            yield finding
            continue
        cell, line = notebook.cell(finding.location.cell), finding.location.line
        if cell.lines:
            at = cell.lines[min(line, len(cell.lines)) - 1]
            yield replace(finding, file_line=at, file_column=finding.location.column + cell.indent)
        else:
            written = written or file_lines(text, [other.source for other in notebook.cells])
            lines = written[cell.number - 1]
            yield replace(finding, file_line=lines[line - 1] if line <= len(lines) else None)
