"""Rules as data, and their examples as tests."""

from __future__ import annotations

import pkgutil
import re
import sys
from pathlib import Path
from typing import Any

import pytest
import tomllib
from click.testing import CliRunner

import nb2ddp.rules
from nb2ddp.cli.main import main
from nb2ddp.facts.program import Program
from nb2ddp.options import Options
from nb2ddp.project.config import settings
from nb2ddp.results import Severity
from nb2ddp.rules.engine import rewrite
from nb2ddp.rules.index import KNOWN, RULES
from nb2ddp.rules.rule import Rule
from tests.examples import FURTHER, PAGES, Example, examples, read_page
from tests.notebooks import apply_rule, example_notebook
from tests.rule_index import INDEX, index

EXAMPLES = [
    pytest.param(rule, example, id=f"{rule.code}-{number}")
    for rule in RULES
    for number, example in enumerate(examples(rule), start=1)
]


def options(example: Example) -> Options:
    return settings(tomllib.loads(f"options = {{{example.options}}}")["options"]).options


@pytest.mark.parametrize(("rule", "example"), EXAMPLES)
def test_example(rule: Rule, example: Example) -> None:
    result = apply_rule(rule, example.before, options(example))
    assert result == (example.before if example.after is None else example.after)
    assert apply_rule(rule, result, options(example)) == result, "a second application changes more"
    found = rewrite(Program(example_notebook(example.before), options(example)), [rule]).diagnostics
    assert bool(found) == (example.after is not None or example.reported)
    for each in found:
        assert each.code == rule.code
        problem, _, solution = each.message.partition("; the script")
        if each.severity is Severity.NOTE:
            assert not each.fixed or solution or "script" in problem, "a note says what the script does"
        else:
            assert any(mark in each.message for mark in (": ", "; ", ", so ")), "it says what follows, or what to do"


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.code)
def test_every_rule_shows_what_it_finds_and_what_it_leaves_alone(rule: Rule) -> None:
    found = read_page(PAGES / f"{rule.code}.md")
    assert any(example.after is not None or example.reported for example in found)
    assert any(example.after is None and not example.reported for example in found)


def test_every_module_of_the_package_is_a_rule_that_is_used() -> None:
    modules = {name for _, name, _ in pkgutil.iter_modules(nb2ddp.rules.__path__)}
    assert {rule.find.__module__.rsplit(".", 1)[-1] for rule in RULES} == modules - {
        "engine",
        "index",
        "rule",
        "suppress",
    }


def test_a_retired_code_is_not_used_again() -> None:
    """Notebooks and settings may still name a retired code: `# nb2ddp: ignore[DDP404]`."""
    retired = "DDP207 DDP208 DDP213 DDP215 DDP216 DDP217 DDP301 DDP304 DDP309 DDP316 DDP404 DDP407 DDP411 DDP413"
    assert KNOWN.keys().isdisjoint(retired.split())


def test_codes_and_names() -> None:
    assert len({rule.name for rule in RULES}) == len(RULES)
    for rule in RULES:
        assert re.fullmatch(r"DDP\d{3}", rule.code)
        assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", rule.name)
        assert re.fullmatch(r".{,109}\.", rule.summary), "one line of the index"
        assert " ".join(rule.paragraphs[1:]).endswith((".", ")"))
        text = f"{sys.modules[rule.find.__module__].__doc__} {rule.find.__doc__}"
        assert rule.summary in text.replace("\n", " "), "the docstring has the summary of the page"


def test_each_code_has_a_page() -> None:
    titles = [path.read_text(encoding="utf-8").partition("\n")[0] for path in sorted(PAGES.glob("*.md"))]
    assert titles == [f"# {code} {known.name}" for code, known in sorted(KNOWN.items())]


@pytest.mark.parametrize("page", sorted([*PAGES.glob("*.md"), *FURTHER.glob("*.md")]), ids=lambda page: page.stem)
def test_each_block_of_a_page_is_an_example(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert text.startswith(f"# {page.stem} {KNOWN[page.stem].name}\n")
    found = read_page(page)
    assert len(re.findall("(?m)^```", text)) == 2 * len(found)
    assert len(found) <= 3 or page.parent == FURTHER, "further examples have a folder of their own"
    for example in found:
        if example.is_diff:
            assert all(line[:1] in ("", " ", "+", "-") for line in example.code.split("\n"))
        else:
            assert re.fullmatch(r"(Left alone|Reported)( \(.*\))?( with `.*`)?", example.title)


def test_the_index_is_up_to_date() -> None:
    assert INDEX.read_text(encoding="utf-8") == index(), "run python -m tests.rule_index"


@pytest.mark.parametrize("code", KNOWN)
def test_explain_prints_the_text_of_the_page(code: str) -> None:
    text = (PAGES / f"{code}.md").read_text(encoding="utf-8").removeprefix("# ")
    assert CliRunner().invoke(main, ["explain", code]).output == f"{text}\n"


def test_the_rule_of_the_architecture_page_works(tmp_path: Path) -> None:
    """Add the example rule of the page in the same way as a reader would."""
    text = (PAGES.parent / "architecture.md").read_text(encoding="utf-8")
    names: dict[str, Any] = {}
    exec(text.split("```python\n", 1)[1].split("```", 1)[0], names)
    rule: Rule = names["cache_cleared_by_every_process"]
    page = tmp_path / "DDP4xx.md"
    page.write_text(text.split("````markdown\n", 1)[1].split("````", 1)[0])
    found = read_page(page)
    assert rule.name == page.read_text().split()[2]
    assert page.read_text().split("\n\n")[1].replace("\n", " ") in str(rule.find.__doc__)
    assert len(found) == 2
    for example in found:
        assert apply_rule(rule, example.before, options(example)) == (
            example.before if example.after is None else example.after
        )
