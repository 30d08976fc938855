"""The codes of what the command itself finds, beside those of the rules."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True)
class Code:
    """A code that belongs to no rule: what it says, why, and what to do."""

    code: str
    name: str
    summary: str
    why: str


INTERNAL: Final = Code(
    "DDP000",
    "internal-error",
    "nb2ddp failed on this notebook.",
    "A fault of nb2ddp, not of the notebook. Nothing was written for it. Please report it with the notebook.",
)
UNREADABLE: Final = Code(
    "DDP001",
    "notebook-not-converted",
    "The notebook cannot be read or converted.",
    "The file is no notebook, not a Python one, or a cell is not Python. Nothing was written for it: a script that "
    "leaves a cell out would train something else.",
)
STALE: Final = Code(
    "DDP901",
    "script-out-of-date",
    "The script or a launch file is not what the notebook converts to.",
    "Somebody edited the notebook, the script or the options and did not convert again. Run nb2ddp without --check.",
)
UNUSED: Final = Code(
    "DDP902",
    "unused-suppression",
    "A suppression comment that suppresses nothing.",
    "What it was written for is gone, or stands on another line. A comment `# nb2ddp: ignore[DDP101]` is for its own "
    "line, or for the next one where it stands alone. Remove it, or it will hide the next finding.",
)
NOT_WRITTEN: Final = Code(
    "DDP903",
    "file-not-accessible",
    "A file cannot be read or written.",
    "The system's own reason is in the message. What was there before is still there, whole.",
)

OWN_CODES: Final = {code.code: code for code in (INTERNAL, UNREADABLE, STALE, UNUSED, NOT_WRITTEN)}
