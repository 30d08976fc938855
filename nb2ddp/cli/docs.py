"""Write what the rules say of themselves: one rule for `--explain`, all of them for `docs/rules.md`.

`python -m nb2ddp.cli.docs` writes the page; `python -m nb2ddp.cli.docs --check` fails where it is out of date.
"""

from __future__ import annotations

import difflib
import sys
from pathlib import Path

from nb2ddp.rules.index import RULES
from nb2ddp.rules.rule import Example, Rule
from nb2ddp.script.templates import render

PAGE = Path(__file__).parents[2] / "docs" / "rules.md"


def explain(rule: Rule) -> str:
    """Everything one rule says, as Markdown."""
    return render("rule.md.j2", rule=rule, diffs=[(example, difference(example)) for example in rule.examples])


def page() -> str:
    """The page about all rules."""
    return render("rules.md.j2", rules=RULES, texts=[explain(rule) for rule in RULES])


def difference(example: Example) -> str:
    """An example as a diff without headers; empty where nothing changes."""
    if example.after is None:
        return ""
    lines = difflib.unified_diff(example.before.splitlines(), example.after.splitlines(), lineterm="", n=99)
    return "\n".join(list(lines)[3:])


def main(arguments: list[str]) -> int:
    """Write the page, or with `--check` say whether it is up to date (0) or not (1)."""
    text = page()
    if arguments == ["--check"]:
        if PAGE.read_text(encoding="utf-8") == text:
            return 0
        print(f"{PAGE.name} is out of date: run python -m nb2ddp.cli.docs", file=sys.stderr)
        return 1
    PAGE.parent.mkdir(exist_ok=True)
    PAGE.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
