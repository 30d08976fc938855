"""Rules as data, and their examples as tests."""

from __future__ import annotations

import pkgutil
import re
from pathlib import Path
from typing import Any

import pytest
from click import unstyle

import nb2ddp.rules
from nb2ddp.cli import docs
from nb2ddp.cli.explain import explained
from nb2ddp.facts.program import Program
from nb2ddp.rules.engine import rewrite
from nb2ddp.rules.index import KNOWN, RULES
from nb2ddp.rules.rule import Example, Rule
from tests.notebooks import apply_rule, example_notebook

EXAMPLES = [
    pytest.param(rule, example, id=f"{rule.code}-{number}")
    for rule in RULES
    for number, example in enumerate(rule.examples, start=1)
]


@pytest.mark.parametrize(("rule", "example"), EXAMPLES)
def test_example(rule: Rule, example: Example) -> None:
    result = apply_rule(rule, example.before, example.options)
    assert result == (example.before if example.after is None else example.after)
    assert apply_rule(rule, result, example.options) == result, "a second application changes more"


@pytest.mark.parametrize(("rule", "example"), EXAMPLES)
def test_rule_is_silent_where_it_leaves_code_alone(rule: Rule, example: Example) -> None:
    found = rewrite(Program(example_notebook(example.before), example.options), [rule]).diagnostics
    assert all(d.code == rule.code for d in found)
    assert bool(found) == (example.after is not None or example.reported)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.code)
def test_every_rule_shows_what_it_finds_and_what_it_leaves_alone(rule: Rule) -> None:
    assert any(example.after is not None or example.reported for example in rule.examples)
    assert any(example.after is None and not example.reported for example in rule.examples)


def test_every_module_of_the_package_is_a_rule_that_is_used() -> None:
    modules = {name for _, name, _ in pkgutil.iter_modules(nb2ddp.rules.__path__)}
    assert {rule.find.__module__.rsplit(".", 1)[-1] for rule in RULES} == modules - {
        "engine",
        "index",
        "rule",
        "suppress",
    }


def test_a_retired_code_is_not_used_again() -> None:
    """Notebooks and settings still name them: `# nb2ddp: ignore[DDP404]`."""
    assert KNOWN.keys().isdisjoint({"DDP207", "DDP208", "DDP215", "DDP304", "DDP316", "DDP404", "DDP407"})


def test_codes_and_names() -> None:
    assert len({rule.code for rule in RULES}) == len(RULES)
    assert len({rule.name for rule in RULES}) == len(RULES)
    for rule in RULES:
        assert re.fullmatch(r"DDP\d{3}", rule.code)
        assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", rule.name)
        assert (rule.text or "").startswith(f"{rule.code}: {rule.summary}\n\n"), "one line of the index"
        assert re.fullmatch(r".{,109}\.", rule.summary)
        assert rule.why.endswith((".", ")"))
        assert rule.examples


def test_pages_are_up_to_date() -> None:
    assert docs.outdated(docs.DOCS) == [], "run python -m nb2ddp.cli.docs"


def test_stale_pages_are_found_and_renewed(tmp_path: Path) -> None:
    docs.write(tmp_path)
    assert docs.outdated(tmp_path) == []
    (tmp_path / "rules" / "DDP998.md").write_text("of a rule that is gone\n")
    (tmp_path / "rules" / "DDP101.md").write_text("old\n")
    (tmp_path / "rules" / "DDP102.md").unlink()
    (tmp_path / "rules.md").write_text("old\n")
    assert docs.outdated(tmp_path) == ["rules.md", "rules/DDP101.md", "rules/DDP102.md", "rules/DDP998.md"]
    docs.write(tmp_path)
    assert docs.outdated(tmp_path) == []


@pytest.mark.parametrize("code", KNOWN)
def test_explain_prints_the_text_of_the_page(code: str) -> None:
    printed = " ".join(" ".join(unstyle(line) for line in explained(KNOWN[code])).split())
    page = docs.explain(KNOWN[code]).partition("# ")[2]
    assert printed == " ".join(re.sub("(?m)^```.*$", "", page).split())


def test_the_rule_of_the_architecture_page_works() -> None:
    """The example that shows how to add a rule, as a reader would add it."""
    text = (Path(__file__).parents[2] / "docs" / "architecture.md").read_text(encoding="utf-8")
    names: dict[str, Any] = {}
    exec(text.split("```python\n", 1)[1].split("```", 1)[0], names)
    rule: Rule = names["RULE"]
    for example in rule.examples:
        assert apply_rule(rule, example.before, example.options) == (
            example.before if example.after is None else example.after
        )
