"""Tables of Markdown, and the places of pages that they stand in."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeVar

Results = TypeVar("Results")


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def fill(page: str, results: Results, tables: Mapping[str, Callable[[Results], str]]) -> str:
    """Replace the tables of a page: each stands between `<!-- NAME -->` and `<!-- end -->`.

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
