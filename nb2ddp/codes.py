"""The codes of what the command itself finds, beside those of the rules."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Final

from nb2ddp.results import Diagnostic, Severity


@dataclass(frozen=True)
class Code:
    """A code that belongs to no rule: what it says, why, and what to do. It has no examples."""

    code: str
    name: str
    summary: str
    why: str
    examples: ClassVar[tuple[()]] = ()

    def found(self, message: str, severity: Severity = Severity.ERROR) -> Diagnostic:
        """A finding of this code, of a file as a whole."""
        return Diagnostic(self.code, self.name, severity, message)


INTERNAL: Final = Code(
    "DDP000",
    "internal-error",
    "nb2ddp failed on this notebook.",
    "A fault of nb2ddp, not of the notebook. Nothing was written for it. Please report it with the notebook.",
)
#: What its findings say.
INTERNAL_SAID: Final = "internal error: {}; nothing is written: please report it with the notebook"
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
    "Somebody changed the notebook, the options or the version of nb2ddp and did not convert again. Run nb2ddp without "
    "--check; what was edited in the script by hand is kept.",
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

EDITED: Final = Code(
    "DDP904",
    "edited-by-hand",
    "A script or a launch file was edited since nb2ddp wrote it.",
    "The file's line `convert again:` holds a checksum of what was written, and the file is another one now. Nothing "
    "is wrong with that: converting again keeps the edits, and puts what is new in the notebook beside them.",
)
CONFLICT: Final = Code(
    "DDP905",
    "edits-in-conflict",
    "The notebook changed where a file was edited by hand, so nothing was written.",
    "Edits are kept by a three-way merge of what nb2ddp wrote then, what is there, and what it would write now. Where "
    "both changed the same lines, a person decides: --keep mine takes the edited lines, --keep new the notebook's; or "
    "take the new lines into the file, beside the own ones where both can stand, and convert again; or make the edit "
    "in the notebook too. What was written then comes from the cache folder of the machine that converted, or from "
    "converting a version of the notebook that git has.",
)
FOREIGN: Final = Code(
    "DDP906",
    "not-ours-to-replace",
    "A file of that name is there that nb2ddp did not write, or made of another notebook, so nothing was written.",
    "Files of nb2ddp's begin with a comment `convert again:`, which names their notebook; pages of --report hold a "
    "checksum. This one does not, or was made of another notebook, so it holds somebody's work. Name another file, "
    "move this one away, or replace it with --force.",
)
OTHER_SETTINGS: Final = Code(
    "DDP907",
    "launch-settings-changed",
    "The launch file that several scripts share got other settings.",
    "One accelerate_config.yaml starts all scripts of its folder. Converting a notebook with other options changes it"
    " for all of them. Convert with the options of before, set them in pyproject.toml, or give the scripts folders of"
    " their own.",
)
REMEMBERED: Final = Code(
    "DDP908",
    "options-remembered",
    "Options come from the script's first lines, or differ from those.",
    "A conversion takes the options that its script was converted with the last time, as its line `convert again:` has "
    "them. Those of the command line, then those of [tool.nb2ddp] in pyproject.toml, are stronger. --reset starts over "
    "with these alone.",
)
HIDDEN: Final = Code(
    "DDP909",
    "module-hidden",
    "A file beside the script has the name of a module that the script needs.",
    "Python looks into the script's folder first: a `torch.py` or `wandb.py` there is imported in place of the "
    "package, and `python train.py` ends in an ImportError or an AttributeError. Rename the file.",
)

OWN_CODES: Final = {
    code.code: code
    for code in (
        INTERNAL,
        UNREADABLE,
        STALE,
        UNUSED,
        NOT_WRITTEN,
        EDITED,
        CONFLICT,
        FOREIGN,
        OTHER_SETTINGS,
        REMEMBERED,
        HIDDEN,
    )
}
