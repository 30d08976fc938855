"""The request of a command line, with the options that only the command has."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from nb2ddp.results import Severity
from nb2ddp.settings import setting


@dataclass(frozen=True)
class Request:
    """A command line."""

    paths: tuple[str, ...]
    #: Settings, by the keys of `options.SETTINGS`: only those that were given.
    given: Mapping[str, Any]
    check: bool = setting(False, "Write nothing; exit with 1 if a script is out of date.", section="What to do")
    diff: bool = setting(
        False,
        "Write nothing; show what would change in the files; with --check too, exit as it does.",
        section="What to do",
    )
    rewrites: bool = setting(
        False, "Write nothing; show the script as a diff from the notebook's own code.", section="What to do"
    )
    force: bool = setting(
        False,
        "Also replace files that you edited or that nb2ddp did not write; never a notebook.",
        section="What to do",
    )
    keep: tuple[str, ...] = setting(
        (),
        "Resolve conflicts with your lines (mine) or the notebook's (new), in all files or in one (mine=train.py).",
        section="What to do",
        metavar="SIDE[=FILE]",
    )
    reset: bool = setting(False, "Ignore the options of the script's last conversion.", section="What to do")
    hook: bool = setting(
        False, "For pre-commit: exit with 1 and the `git add` line where something was written.", section="What to do"
    )
    form: Literal["text", "json", "github", "sarif"] = setting(
        "text", "How to print findings (default text).", key="format", section="Findings"
    )
    summary_file: Path | None = setting(
        None, "Append a Markdown table, as for $GITHUB_STEP_SUMMARY.", section="Findings", metavar="FILE"
    )
    report: Path | None = setting(
        None,
        "Write a page that shows each cell beside the script, with the findings.",
        section="Findings",
        metavar="PAGE.html",
    )
    sarif_file: Path | None = setting(
        None, "Write the findings as SARIF, for code scanning.", section="Findings", metavar="FILE"
    )
    quiet: bool = setting(False, "Print errors only.", section="Findings", short="-q")
    verbose: bool = setting(False, "Also print notes: every line that was rewritten.", section="Findings", short="-v")
    jobs: int | None = setting(
        None, "Number of converting processes (default: cores).", section="Other", metavar="N", least=1, short="-j"
    )
    isolated: bool = setting(False, "Do not read pyproject.toml.", section="Other")

    @property
    def level(self) -> Severity:
        """The lowest severity of findings to print."""
        if self.quiet:
            return Severity.ERROR
        return Severity.NOTE if self.verbose else Severity.WARNING
