"""List what a job needs in the script's first lines, and check it at the start."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Sequence
from typing import Final

from nb2ddp.facts.needs import Kind, Need
from nb2ddp.facts.shell import quoted

_WIDTH: Final = 100
#: The lines that `named` gives, as the first lines of a script hold them.
_STATED = re.compile(r"^#   needs: +(.*(?:\n# {10,}.*)*)", re.MULTILINE)
#: The lines that `tests` puts into a script.
_TESTS = re.compile(r"^(missing_*) = \[.*\n(?:\1 \+= \[.*\n)?if \1:\n    sys\.exit\(.*\n", re.MULTILINE)


def stated(script: str) -> list[str]:
    """What a job needs, as the first lines of its script state it; empty for a script of another origin."""
    found = _STATED.search(script)
    return re.sub(r"\n#\s+", " ", found[1]).split("; ") if found is not None else []


def named(needs: Sequence[str]) -> list[str]:
    """The list as lines: `HF_TOKEN (cells 3, 42); /content/rows.csv (cell 5)`."""
    text = "; ".join(need.replace(" ", "\0") for need in needs)  # no line ends inside a need
    lines = textwrap.wrap(text.replace(";\0", "; "), _WIDTH, break_long_words=False, break_on_hyphens=False)
    return [line.replace("\0", " ") for line in lines]


def tests(needs: Sequence[Need], missing: str) -> str:
    """The lines that end a job at its start, in every process, where something is missing that it cannot do without.

    Args:
        needs: all needs; those are tested that are required.
        missing: the name in the script for what is.
    """
    tested = {kind: [need.name for need in needs if need.kind is kind and need.required] for kind in Kind}
    variables, paths = (_tuple(tested[kind]) for kind in (Kind.VARIABLE, Kind.PATH))
    lines = [f"{missing} = [name for name in {variables} if name not in os.environ]"] if variables else []
    if paths:
        lines.append(f"{missing} {'+=' if lines else '='} [path for path in {paths} if not os.path.exists(path)]")
    if not lines:
        return ""
    text = f"\"Missing: {{', '.join({missing})}} (see the first lines of this script)\""
    return "\n".join([*lines, f"if {missing}:", f"    sys.exit(f{text} if is_main_process else 1)"])


def untested(script: str) -> str:
    """A script without these lines, each left blank: a rehearsal has stand-ins for what is missing."""
    return _TESTS.sub(lambda found: "\n" * found[0].count("\n"), script, count=1)


def _tuple(names: Sequence[str]) -> str:
    """Names as a tuple's code; empty for none."""
    return f"({', '.join(map(quoted, names))}{',' if len(names) == 1 else ''})" if names else ""
