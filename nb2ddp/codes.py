"""Codes of what the command itself reports, beside those of the rules, and the pages of all codes."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

from nb2ddp.results import Diagnostic, Severity

_PACKAGE = Path(__file__).parent
#: Where a page may lie: in the package when installed from a wheel, beside it in a checkout or an sdist.
FOLDERS = (_PACKAGE / "pages", _PACKAGE.parent / "docs" / "rules")
_BLOCK = re.compile(
    r"^(?:(?P<title>\S[^\n]*):\n\n)?^(?P<fence>`{3,})(?P<kind>diff|python)\n(?P<code>.*?)^(?P=fence)$", re.M | re.S
)
_OPTIONS = re.compile(r"with `(.*)`$", re.IGNORECASE)


@dataclass(frozen=True)
class Example:
    """A block of a page: a notebook's code, and the script's after one rule alone.

    Cells are separated by a line `# %%`; a cell's last line `#> KeyError: 'a'` is its saved error.

    Attributes:
        code: a diff with all lines if the rule rewrites something, else the notebook's code.
        is_diff: the rule rewrites something.
        title: the line above it, such as "Left alone", "Reported" if the rule finds something and rewrites nothing, or
            "With `resume = true`".
    """

    code: str
    is_diff: bool
    title: str = ""

    @property
    def before(self) -> str:
        """The notebook's code."""
        return self._without("+") if self.is_diff else self.code

    @property
    def after(self) -> str | None:
        """The script's code; None if the rule rewrites nothing."""
        return self._without("-") if self.is_diff else None

    @property
    def reported(self) -> bool:
        """The rule finds something and rewrites nothing."""
        return self.title.startswith("Reported")

    @property
    def options(self) -> str:
        """The options of the conversion, as pyproject.toml has them."""
        return "".join(_OPTIONS.findall(self.title))

    def _without(self, mark: str) -> str:
        return "".join(f"{line[1:]}\n" for line in self.code.split("\n")[:-1] if line[:1] != mark)


@dataclass(frozen=True)
class Code:
    """What a finding is: a code, and a page of docs/rules that says what it means, why, and what to do."""

    code: str
    name: str

    @property
    def summary(self) -> str:
        """What it means, or what the script does about it, in one sentence."""
        return self._page[0][0]

    @property
    def why(self) -> str:
        """What goes wrong otherwise, in paragraphs."""
        return "\n\n".join(self._page[0][1:])

    @property
    def examples(self) -> tuple[Example, ...]:
        """The page's blocks of code; those of a rule are its tests."""
        return self._page[1]

    @property
    def _page(self) -> tuple[list[str], tuple[Example, ...]]:
        return read_page(next(page for folder in FOLDERS if (page := folder / f"{self.code}.md").exists()))

    def found(self, message: str, severity: Severity = Severity.ERROR) -> Diagnostic:
        """A finding of this code, of a file as a whole."""
        return Diagnostic(self.code, self.name, severity, message)


@cache
def read_page(page: Path) -> tuple[list[str], tuple[Example, ...]]:
    """Read a page: the paragraphs below its title, each on one line, and its examples."""
    text = page.read_text(encoding="utf-8").partition("\n")[2]
    blocks = list(_BLOCK.finditer(text))
    said = text[: blocks[0].start()] if blocks else text
    paragraphs = [paragraph.replace("\n", " ") for paragraph in said.strip().split("\n\n")]
    return paragraphs, tuple(Example(b["code"], b["kind"] == "diff", b["title"] or "") for b in blocks)


INTERNAL: Final = Code("DDP000", "internal-error")
#: What its findings say.
INTERNAL_SAID: Final = "internal error: {}; nothing is written: please report it with the notebook"
UNREADABLE: Final = Code("DDP001", "notebook-not-converted")
STALE: Final = Code("DDP901", "script-out-of-date")
UNUSED: Final = Code("DDP902", "unused-suppression")
NOT_WRITTEN: Final = Code("DDP903", "file-not-accessible")

EDITED: Final = Code("DDP904", "edited-by-hand")
CONFLICT: Final = Code("DDP905", "edits-in-conflict")
FOREIGN: Final = Code("DDP906", "not-ours-to-replace")
OTHER_SETTINGS: Final = Code("DDP907", "launch-settings-changed")
REMEMBERED: Final = Code("DDP908", "options-remembered")
HIDDEN: Final = Code("DDP909", "module-hidden")

OWN_CODES: Final = {value.code: value for value in list(vars().values()) if isinstance(value, Code)}
