"""The page: what it says, and that nothing in a notebook becomes a part of it."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from tests.command import Command, files
from tests.notebook.test_marimo import TRAINING
from tests.notebooks import CELLS, markdown, write

WARNING = "from trl import SFTTrainer\ntrainer = SFTTrainer(model = model)\ntrainer.train()"


class Elements(HTMLParser):
    """The tags of a page with their attributes, and the ids that links lead to."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def values(self, name: str) -> list[str]:
        return [value for _, attributes in self.tags if (value := attributes.get(name)) is not None]


@pytest.fixture
def page(command: Command, tmp_path: Path) -> str:
    """A page of a notebook with a warning and hostile text, of a marimo notebook, and of one that is refused."""
    hostile = '<script>alert(1)</script> "quoted" \x1b[31m'
    write(tmp_path / "nb" / "<img src=x>.ipynb", markdown(hostile), CELLS[0], CELLS[1], f"# {hostile}\n{WARNING}")
    (tmp_path / "nb" / "m.py").write_text(TRAINING)
    write(tmp_path / "nb" / "broken.ipynb", "x = = 1  # </script><b>")
    result = command("nb", "--output-dir", "out", "--report", "page.html")
    assert result.exit_code == 2
    return (tmp_path / "page.html").read_text(encoding="utf-8")


def test_needs_nothing_but_itself_and_runs_nothing_of_a_notebook(page: str) -> None:
    found = Elements(page)
    assert [tag for tag, _ in found.tags].count("script") == 1
    assert not {"img", "b", "iframe", "link"} & {tag for tag, _ in found.tags}
    assert all(value.startswith("#") for value in found.values("href"))
    assert found.values("src") == []
    assert "default-src 'none'" in page
    assert "\x1b" not in page
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in page


def test_links_lead_somewhere(page: str) -> None:
    found = Elements(page)
    identities = found.values("id")
    assert len(identities) == len(set(identities))
    assert {value[1:] for value in found.values("href")} <= set(identities)


def test_shows_cells_beside_the_script_with_the_reason(page: str) -> None:
    text = re.sub(r"<[^>]+>", "", page)
    assert "3 notebooks: 2 converted, 1 failed" in text
    row = re.search(r'<details class="row" id="notebook-\d+-3"(.*?)</details>', page, re.DOTALL)
    assert row is not None
    assert row[1].startswith(" open>"), "what was rewritten is unfolded"
    assert 'href="#DDP101"' in row[1]
    assert re.search(r'class="l new">.*device_map', row[1])
    assert re.search(r'<details class="row" id="notebook-\d+-1">', page), "what stays is folded"
    assert page.index("serious") < page.index('class="row"')


def test_is_written_with_a_check_too_and_not_with_a_diff(command: Command, tmp_path: Path) -> None:
    write(tmp_path / "a.ipynb")
    assert command("a.ipynb", "t.py", "--check", "--report", "page.html").exit_code == 1
    assert files(tmp_path) == {"a.ipynb", "page.html"}
    assert "device_map" in re.sub(r"<[^>]+>", "", (tmp_path / "page.html").read_text())
    refused = command("a.ipynb", "t.py", "--diff", "--report", "page.html")
    assert refused.exit_code == 2
    assert "--check --report" in refused.stderr
