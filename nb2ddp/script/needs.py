"""List what a job needs in the script's first lines, and check it at the start."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Sequence

from nb2ddp.facts.needs import Kind, Need
from nb2ddp.facts.program import Program
from nb2ddp.facts.shell import quoted

_WIDTH = 100
#: A name that a shell can export.
_NAME = re.compile(r"[A-Za-z_]\w*", re.ASCII)
#: The lines that `named` returns, as the first lines of a script contain them.
_STATED = re.compile(r"^#   needs: +(.*(?:\n# {10,}.*)*)", re.MULTILINE)
#: The lines that `tests` puts into a script.
_TEST = """\
if {0} := [name for name in {1} if name not in os.environ]:
    sys.exit(f"Missing: {{', '.join({0})}} (see the first lines of this script)" if is_main_process else 1)"""
_TESTS = re.compile(r"^if missing_* := \[.*\n    .*\n", re.MULTILINE)


def stated(script: str) -> list[str]:
    """Return the needs in a script's first lines; empty for a script that nb2ddp did not write."""
    match = _STATED.search(script)
    return re.sub(r"\n#\s+", " ", match[1]).split("; ") if match is not None else []


def named(needs: Sequence[str]) -> list[str]:
    """Return the needs as lines: `HF_TOKEN (cells 3, 42); /content/rows.csv (cell 5)`."""
    text = "; ".join(need.replace(" ", "\0") for need in needs)  # no line ends inside a need
    lines = textwrap.wrap(text.replace(";\0", "; "), _WIDTH, break_long_words=False, break_on_hyphens=False)
    return [line.replace("\0", " ") for line in lines]


def tests(needs: Sequence[Need], missing: str) -> str:
    """Return the lines that end a job at its start, in every process, if a variable that the script reads is not set.

    Args:
        needs: all needs; only required ones are tested.
        missing: the script's variable for the names of the missing ones.
    """
    names = [quoted(need.name) for need in needs if need.required]
    return _TEST.format(missing, f"({', '.join(names)}{',' * (len(names) == 1)})") if names else ""


def untested(script: str) -> str:
    """Return a script with the lines of `tests` blank: a rehearsal has placeholders for missing files and secrets."""
    return _TESTS.sub(lambda match: "\n" * match[0].count("\n"), script, count=1)


def secrets(program: Program) -> list[str]:
    """Return the variables that a job needs."""
    names = [need.name for need in program.needs if need.kind is Kind.VARIABLE]
    return [name for name in dict.fromkeys(names) if _NAME.fullmatch(name)]


def passed_variables(program: Program) -> list[str]:
    """Return the variables that a launcher passes to a job: the token for gated models, and those that it needs."""
    return list(dict.fromkeys(["HF_TOKEN", *secrets(program)]))
