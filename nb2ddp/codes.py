"""Codes of the findings that the command itself reports, other than those of the rules, and the pages of all codes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from nb2ddp.results import Diagnostic, Severity

_PACKAGE = Path(__file__).parent
#: The folders of the pages: in the package when installed from a wheel, next to it in a checkout or an sdist.
FOLDERS = (_PACKAGE / "pages", _PACKAGE.parent / "docs" / "rules")


@dataclass(frozen=True)
class Code:
    """The kind of a finding: a code, and a page of docs/rules that explains its meaning, its reason, and what to do."""

    code: str
    name: str

    @property
    def page(self) -> str:
        """The page, as Markdown."""
        return next(page for folder in FOLDERS if (page := folder / f"{self.code}.md").exists()).read_text("utf-8")

    @property
    def paragraphs(self) -> list[str]:
        """The paragraphs of the page before its first example, each in one line; the first gives the meaning."""
        texts = self.page.partition("\n```")[0].strip().split("\n\n")[1:]
        return [paragraph.replace("\n", " ") for paragraph in texts if not paragraph.endswith(":")]

    @property
    def summary(self) -> str:
        """The meaning, or what the script does about it, in one sentence."""
        return self.paragraphs[0]

    def found(self, message: str, severity: Severity = Severity.ERROR) -> Diagnostic:
        """Return a finding of this code about a file as a whole."""
        return Diagnostic(self.code, self.name, severity, message)


INTERNAL = Code("DDP000", "internal-error")
#: The message of its findings.
INTERNAL_MESSAGE = "internal error: {}; nothing is written: please report it with the notebook"
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
