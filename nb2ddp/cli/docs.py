"""Write the pages about the rules: an index, `docs/rules.md`, and `docs/rules/CODE.md` for each code.

`python -m nb2ddp.cli.docs` writes the pages; `python -m nb2ddp.cli.docs --check` fails if one is out of date.
"""

from __future__ import annotations

import difflib
import sys
from pathlib import Path

from nb2ddp.codes import Code
from nb2ddp.rules.index import KNOWN
from nb2ddp.rules.rule import Example, Rule
from nb2ddp.script.templates import render

DOCS = Path(__file__).parents[2] / "docs"
#: What the first digit of a code stands for.
GROUPS = {
    "0": "Notebooks that cannot be converted",
    "1": "Models and GPUs",
    "2": "Trainers",
    "3": "Notebook-only code",
    "4": "What each process runs",
    "9": "Files and options",
}


def explain(rule: Rule | Code) -> str:
    """The page of a rule, or of a code of the command, as Markdown."""
    return render("rule.md.j2", rule=rule, diffs=[(example, difference(example)) for example in shown(rule)])


def shown(rule: Rule | Code) -> list[Example]:
    """The examples in the order in which a reader sees them: rewrites first."""
    return sorted(rule.examples, key=lambda example: example.after is None)


def pages() -> dict[str, str]:
    """Every generated page: its path below `docs/`, and its text."""
    known = sorted(KNOWN.items())
    groups = {title: [rule for code, rule in known if code[3] == digit] for digit, title in GROUPS.items()}
    return {"rules.md": render("rules.md.j2", groups=groups)} | {
        f"rules/{code}.md": explain(rule) for code, rule in KNOWN.items()
    }


def difference(example: Example) -> str:
    """An example as a diff without headers; empty if nothing changes."""
    if example.after is None:
        return ""
    lines = difflib.unified_diff(example.before.splitlines(), example.after.splitlines(), lineterm="", n=99)
    return "\n".join(list(lines)[3:])


def outdated(docs: Path) -> list[str]:
    """The pages below a folder that are missing, differ from what is generated, or belong to no code."""
    expected = pages()
    found = {f"rules/{path.name}": path for path in (docs / "rules").glob("*.md")} | {"rules.md": docs / "rules.md"}
    written = {name: path.read_text(encoding="utf-8") for name, path in found.items() if path.exists()}
    return sorted(name for name in expected | written if expected.get(name) != written.get(name))


def write(docs: Path) -> None:
    """Write the outdated pages, and delete those that belong to no code."""
    expected = pages()
    (docs / "rules").mkdir(parents=True, exist_ok=True)
    for name in outdated(docs):
        if name in expected:
            (docs / name).write_text(expected[name], encoding="utf-8")
        else:
            (docs / name).unlink()


def main(arguments: list[str]) -> int:
    """Write the pages; with `--check`, return 1 and name the pages that are out of date, if any are."""
    if arguments != ["--check"]:
        write(DOCS)
        return 0
    names = outdated(DOCS)
    if names:
        print(f"docs: {', '.join(names)}: out of date, run python -m nb2ddp.cli.docs", file=sys.stderr)
    return bool(names)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
