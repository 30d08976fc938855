"""Markdown tables, and their places in pages."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeVar

Results = TypeVar("Results")


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a Markdown table."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def fill(page: str, results: Results, tables: Mapping[str, Callable[[Results], str]]) -> str:
    """Return a page with its tables replaced. Each is between `<!-- NAME -->` and `<!-- end -->`.

    Raises:
        ValueError: the page has no place for a table.
    """
    for name, make in tables.items():
        before, found, rest = page.partition(f"<!-- {name} -->\n")
        _, end, after = rest.partition("<!-- end -->")
        if not found or not end:
            raise ValueError(f"the page has no place for the table {name}")
        page = f"{before}{found}{make(results)}\n{end}{after}"
    return page
