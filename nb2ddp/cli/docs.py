"""Write the index of the rules' pages, `docs/rules.md`.

`python -m nb2ddp.cli.docs` writes it; `python -m nb2ddp.cli.docs --check` fails if it is out of date.
"""

from __future__ import annotations

import sys
from pathlib import Path

from nb2ddp.rules.index import KNOWN
from nb2ddp.script.templates import render

INDEX = Path(__file__).parents[2] / "docs" / "rules.md"
#: What the first digit of a code stands for.
GROUPS = {
    "0": "Notebooks that cannot be converted",
    "1": "Models and GPUs",
    "2": "Trainers",
    "3": "Notebook-only code",
    "4": "What each process runs",
    "9": "Files and options",
}


def index() -> str:
    """All codes with their summaries, as Markdown."""
    known = sorted(KNOWN.items())
    groups = {title: [rule for code, rule in known if code[3] == digit] for digit, title in GROUPS.items()}
    return render("rules.md.j2", groups=groups)


def main(arguments: list[str]) -> int:
    """Write the index; with `--check`, return 1 if it is out of date."""
    if arguments != ["--check"]:
        INDEX.write_text(index(), encoding="utf-8")
    elif INDEX.read_text(encoding="utf-8") != index():
        print("docs/rules.md is out of date: run python -m nb2ddp.cli.docs", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
