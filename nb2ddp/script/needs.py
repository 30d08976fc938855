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
#: What tells Weights & Biases its key, or that it needs none.
_WANDB_LOGINS: Final = """\
wandb_logins = [*filter(os.environ.get, ("WANDB_API_KEY", "WANDB_MODE", "WANDB_DISABLED"))]
wandb_logins += filter(os.path.exists, (os.path.expanduser("~/.netrc"), "wandb/settings"))"""
#: The lines that `tests` puts into a script.
_TESTS = re.compile(r"^(missing_*) = \[.*\n(?:\1 \+= \[.*\n)*if \1:\n(?:    .*\n)+", re.MULTILINE)


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
    """Return the lines that end a job at its start, in every process, if something required is missing.

    Args:
        needs: all needs; only required ones are tested.
        missing: the script's variable for the missing ones.
    """
    tested = {kind: [need.name for need in needs if need.kind is kind and need.required] for kind in Kind}
    variables = _tuple(tested[Kind.VARIABLE])
    paths = _tuple([name for kind in (Kind.PATH, Kind.WINDOWS, Kind.FILE) for name in tested[kind]])
    folders = _tuple(tested[Kind.FOLDER])
    lists = [f"[name for name in {variables} if name not in os.environ]"] if variables else []
    if paths:
        lists.append(f"[path for path in {paths} if not os.path.exists(path)]")
    if folders:
        there = 'next(filter(os.path.exists, Path(path, "_").parents))'
        lists.append(f"[path for path in {folders} if not os.access({there}, os.W_OK)]")
    if tested[Kind.LOGIN]:
        lists.append(f"[] if huggingface_hub.get_token() else {tested[Kind.LOGIN]}".replace("'", '"'))
    if tested[Kind.TRACKER]:
        lists.append(f"[] if wandb_logins else {tested[Kind.TRACKER]}".replace("'", '"'))
    lines = ["from pathlib import Path\n"] * bool(folders) + ["import huggingface_hub\n"] * bool(tested[Kind.LOGIN])
    lines += [_WANDB_LOGINS] * bool(tested[Kind.TRACKER])
    lines += [f"{missing} {'+=' if number else '='} {test}" for number, test in enumerate(lists)]
    if not lines:
        return ""
    where = "see the first lines of this script"
    lines.append(f"if {missing}:")
    if paths or folders:
        lines.append(f'    where = "{where}; change a path in its cell and in the check at the top"')
        where = "{where}"
    return "\n".join(
        [*lines, f"    sys.exit(f\"Missing: {{', '.join({missing})}} ({where})\" if is_main_process else 1)"]
    )


def untested(script: str) -> str:
    """Return a script with these lines blank: a rehearsal has stand-ins for missing files and secrets."""
    return _TESTS.sub(lambda match: "\n" * match[0].count("\n"), script, count=1)


def _tuple(names: Sequence[str]) -> str:
    """Return names as the code of a tuple; empty if there are none."""
    return f"({', '.join(map(quoted, names))}{',' if len(names) == 1 else ''})" if names else ""
