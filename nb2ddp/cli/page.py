"""Show converted notebooks as one self-contained HTML page: cells, script, and why they differ."""

from __future__ import annotations

import difflib
import re
from base64 import b64encode
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from hashlib import sha256
from itertools import zip_longest

from jinja2 import Environment
from markupsafe import Markup
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import PythonLexer

from nb2ddp.cli import estimate
from nb2ddp.cli.estimate import answered
from nb2ddp.cli.report import Counts, needed, posix, printable
from nb2ddp.estimate.answer import Answer, counted, in_short
from nb2ddp.estimate.gpus import SHOWN, gpu_of
from nb2ddp.notebook.ipynb import Cell
from nb2ddp.notebook.reader import read_notebook
from nb2ddp.project.files import Job, content, decode
from nb2ddp.results import Diagnostic, NotebookError, Result, Severity
from nb2ddp.rules.index import KNOWN
from nb2ddp.script.templates import environment

_TITLE = re.compile(r"# %% (?:Cell (?P<number>\d+)|(?P<title>.+))")
_STYLES = {"light": "default", "dark": "github-dark"}


@dataclass(frozen=True)
class Row:
    """A cell beside its part of the script.

    Attributes:
        title: the row's heading.
        number: the cell's number; None for a part that only the script has.
        kind: `code`, `markdown` or `raw`.
        left: the cell's lines, highlighted, each with whether it stays.
        right: the script's lines, likewise.
        findings: the cell's findings.
    """

    title: str
    number: int | None
    kind: str
    left: list[tuple[Markup, bool]]
    right: list[tuple[Markup, bool]]
    findings: list[Diagnostic]

    @property
    def is_changed(self) -> bool:
        """True if the script differs from the cell, or the cell has findings."""
        return bool(self.findings) or any(not stays for _, stays in [*self.left, *self.right])


@dataclass(frozen=True)
class Shown:
    """A notebook on the page: warnings and errors first, then its rows."""

    result: Result
    serious: list[Diagnostic]
    rows: list[Row]
    counts: Counts
    estimates: list[Answer]


def page(jobs: Sequence[Job], results: Sequence[Result], script_of: Callable[[Job, bytes], str]) -> str:
    """Return the HTML page of several notebooks.

    Args:
        jobs: the converted notebooks, which are read again.
        results: the result of each job.
        script_of: converts a job's notebook, given its content; returns None if that fails.
    """
    shown = [_shown(job, result, script_of) for job, result in zip(jobs, results, strict=True)]
    used = sorted({each.code for result in results for each in result.diagnostics})
    html = environment(autoescape=True)
    html.filters |= {"posix": posix, "printable": printable, "highlighted": _highlighted}
    html.filters |= {"needed": needed, "in_short": in_short, "cells": estimate.cells, "counted": counted}
    script = _text(html, "page.js").strip()
    styles = {mode: HtmlFormatter(style=style).get_style_defs(".code") for mode, style in _STYLES.items()}
    return html.get_template("page.html.j2").render(
        notebooks=shown,
        summary=Counts(results).summary(),
        explained=[KNOWN[code] for code in used],
        codes=used,
        style=Markup(_text(html, "page.css")),
        styles={mode: Markup(text) for mode, text in styles.items()},
        script=Markup(script),
        digest=b64encode(sha256(script.encode()).digest()).decode(),
    )


def _text(html: Environment, name: str) -> str:
    assert html.loader is not None
    return html.loader.get_source(html, name)[0]


def _shown(job: Job, result: Result, script_of: Callable[[Job, bytes], str]) -> Shown:
    serious = [each for each in result.diagnostics if each.severity is not Severity.NOTE]
    cells: tuple[Cell, ...] = ()
    script = ""
    with suppress(NotebookError, OSError):
        found = content(job)
        cells = read_notebook(decode(found), job.notebook.stem, job.notebook.name).cells
        script = script_of(job, found)
    rows = list(_rows(cells, script, result.diagnostics))
    return Shown(result, serious, rows, Counts([result]), answered(job, result, [gpu_of(name) for name in SHOWN]))


def _rows(cells: Sequence[Cell], script: str, every: Sequence[Diagnostic]) -> Iterator[Row]:
    """Return the notebook's cells beside the parts of the script, in the script's order."""
    became: dict[int, str] = {}
    below: dict[int, list[tuple[str, str]]] = {0: []}
    number = 0
    for name, text in _parts(script):
        if isinstance(name, int):
            number, became[name] = name, text
        else:
            below.setdefault(number, []).append((name, text))
    yield from (_row(title, None, "code", "", text, []) for title, text in below[0])
    for cell in cells:
        found = [each for each in every if each.location is not None and each.location.cell == cell.number]
        right = became.get(cell.number, "") if script and cell.kind == "code" else cell.source
        yield _row(f"Cell {cell.number}", cell.number, cell.kind, cell.source, right, found)
        yield from (_row(title, None, "code", "", text, []) for title, text in below.get(cell.number, []))


def _parts(script: str) -> Iterator[tuple[int | str, str]]:
    """Return the parts of a script by their cell's number, or by their title."""
    name: int | str | None = None
    lines: list[str] = []
    for line in [*script.split("\n"), "# %% the end"]:
        match = _TITLE.fullmatch(line)
        if match is None:
            lines.append(line)
            continue
        if name is not None and not str(name).startswith("["):
            yield name, "\n".join(lines).strip("\n")
        name, lines = int(match["number"]) if match["number"] else match["title"], []


def _row(title: str, number: int | None, kind: str, left: str, right: str, found: list[Diagnostic]) -> Row:
    return Row(title, number, kind, _lines(left, right.split("\n")), _lines(right, left.split("\n")), found)


def _lines(text: str, other: Sequence[str]) -> list[tuple[Markup, bool]]:
    """Return each line as highlighted HTML, with True if the other text has it too."""
    if not text:
        return []
    lines = text.split("\n")
    matcher = difflib.SequenceMatcher(None, lines, other, autojunk=False)
    same = {block.a + n for block in matcher.get_matching_blocks() for n in range(block.size)}
    return [(line, n in same or not lines[n].strip()) for n, line in enumerate(_highlighted(text))]


def _highlighted(text: str) -> list[Markup]:
    """Return the lines of a text as highlighted HTML."""
    lines = [printable(line) for line in text.split("\n")]
    lexer, formatter = PythonLexer(stripnl=False, ensurenl=False), HtmlFormatter(nowrap=True)
    marked = highlight("\n".join(lines), lexer, formatter).split("\n")
    return [Markup(line) for line, _ in zip_longest(marked[: len(lines)], lines, fillvalue="")]
