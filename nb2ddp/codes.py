"""Codes of what the command itself reports, beside those of the rules, and the pages of all codes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from nb2ddp.results import Diagnostic, Severity

_PACKAGE = Path(__file__).parent
#: Where a page may lie: in the package when installed from a wheel, beside it in a checkout or an sdist.
FOLDERS = (_PACKAGE / "pages", _PACKAGE.parent / "docs" / "rules")


@dataclass(frozen=True)
class Code:
    """What a finding is: a code, and a page of docs/rules that says what it means, why, and what to do."""

    code: str
    name: str

    @property
    def page(self) -> str:
        """Its page, as Markdown."""
        return next(page for folder in FOLDERS if (page := folder / f"{self.code}.md").exists()).read_text("utf-8")

    @property
    def paragraphs(self) -> list[str]:
        """What the page says before its first example, each paragraph in a line; the first says what it means."""
        said = self.page.partition("\n```")[0].strip().split("\n\n")[1:]
        return [paragraph.replace("\n", " ") for paragraph in said if not paragraph.endswith(":")]

    @property
    def summary(self) -> str:
        """What it means, or what the script does about it, in one sentence."""
        return self.paragraphs[0]

    def found(self, message: str, severity: Severity = Severity.ERROR) -> Diagnostic:
        """A finding of this code, of a file as a whole."""
        return Diagnostic(self.code, self.name, severity, message)


INTERNAL = Code("DDP000", "internal-error")
#: What its findings say.
INTERNAL_SAID = "internal error: {}; nothing is written: please report it with the notebook"
UNREADABLE = Code("DDP001", "notebook-not-converted")
STALE = Code("DDP901", "script-out-of-date")
UNUSED = Code("DDP902", "unused-suppression")
NOT_WRITTEN = Code("DDP903", "file-not-accessible")

EDITED = Code("DDP904", "edited-by-hand")
CONFLICT = Code("DDP905", "edits-in-conflict")
FOREIGN = Code("DDP906", "not-ours-to-replace")
OTHER_SETTINGS = Code("DDP907", "launch-settings-changed")
REMEMBERED = Code("DDP908", "options-remembered")
HIDDEN = Code("DDP909", "module-hidden")

OWN_CODES = {value.code: value for value in list(vars().values()) if isinstance(value, Code)}
