"""Read the examples on the rules' pages, which are the rules' tests, and the tables of code beside other tests."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import pytest
from _pytest.mark import ParameterSet

from nb2ddp.rules.rule import Rule

PAGES = Path(__file__).parents[1] / "docs" / "rules"
#: More examples of rules, in the same format as the pages.
FURTHER = Path(__file__).parent / "rules" / "examples"
_BLOCK = re.compile(
    r"^(?:(?P<title>\S[^\n]*):\n\n)?^(?P<fence>`{3,})(?P<kind>diff|python)\n(?P<code>.*?)^(?P=fence)$", re.M | re.S
)
_OPTIONS = re.compile(r"with `(.*)`$", re.IGNORECASE)


@dataclass(frozen=True)
class Example:
    """A block of a page: a notebook's code, and the script's code after one rule alone.

    A line `# %%` separates cells. A last line `#> KeyError: 'a'` in a cell is its saved error.

    Attributes:
        code: a diff with all lines if the rule rewrites something, else the notebook's code.
        is_diff: whether the rule rewrites something.
        title: the line above it, such as "Left alone", "Reported" if the rule finds something and rewrites nothing, or
            "With `resume = true`".
    """

    code: str
    is_diff: bool
    title: str = ""

    @property
    def before(self) -> str:
        """The notebook's code."""
        return self._without("+") if self.is_diff else self.code

    @property
    def after(self) -> str | None:
        """The script's code, or None if the rule rewrites nothing."""
        return self._without("-") if self.is_diff else None

    @property
    def reported(self) -> bool:
        """Whether the rule finds something and rewrites nothing."""
        return self.title.startswith("Reported")

    @property
    def options(self) -> str:
        """The options of the conversion, in the format of pyproject.toml."""
        return "".join(_OPTIONS.findall(self.title))

    def _without(self, mark: str) -> str:
        return "".join(f"{line[1:]}\n" for line in self.code.split("\n")[:-1] if line[:1] != mark)


def read_page(page: Path) -> tuple[Example, ...]:
    """Return the examples of a page, or none if the page does not exist."""
    text = page.read_text(encoding="utf-8").partition("\n")[2] if page.exists() else ""
    return tuple(Example(b["code"], b["kind"] == "diff", b["title"] or "") for b in _BLOCK.finditer(text))


def examples(rule: Rule) -> tuple[Example, ...]:
    """Return a rule's examples: first those of its page, which a user reads, then further ones."""
    return read_page(PAGES / f"{rule.code}.md") + read_page(FURTHER / f"{rule.code}.md")


def rows(test: str, section: str = "") -> list[ParameterSet]:
    """Return the rows of a table of code and expected answers, for `parametrize`.

    The table `x.txt` belongs to `test_x.py`. A line `=== ...` begins a section, and `--- ...` gives a row a title. Each
    answer follows a `=> ` and may have several lines. `=>` alone means no answer. An empty line ends the row.
    """
    table = Path(test).with_name(Path(test).stem.removeprefix("test_") + ".txt").read_text(encoding="utf-8")
    found = []
    for part in re.split("^=== ", table, flags=re.M)[1:]:
        name, _, text = part.partition("\n")
        for number, row in enumerate(text.strip("\n").split("\n\n"), start=1):
            title, code = row.split("\n", 1) if row.startswith("--- ") else (f"--- {name} {number}", row)
            code, *answers = re.split(r"\n?^=> ?", code, flags=re.M)
            if section in ("", name):
                found.append(pytest.param(code, [*filter(None, answers)], id=title[4:]))
    assert found, f"{test}: no section {section}"
    return found


def table(test: str, section: str = "") -> pytest.MarkDecorator:
    """Run a test for each row of its table, with the row's `code` and `answers`."""
    return pytest.mark.parametrize(("code", "answers"), rows(test, section))
