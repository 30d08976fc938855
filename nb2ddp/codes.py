"""Codes of what the command itself reports, beside those of the rules."""

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
    "This is a fault of nb2ddp, not of the notebook. No file was written. Please report it with the notebook.",
)
#: What its findings say.
INTERNAL_SAID: Final = "internal error: {}; nothing is written: please report it with the notebook"
UNREADABLE: Final = Code(
    "DDP001",
    "notebook-not-converted",
    "The notebook cannot be read or converted.",
    "The file is not a notebook, not a Python notebook, or a cell is not Python. No file was written: a script without "
    "that cell would train something else.",
)
STALE: Final = Code(
    "DDP901",
    "script-out-of-date",
    "The script or a launch file is out of date.",
    "The notebook, the options or the version of nb2ddp changed since the last conversion. Run nb2ddp without --check; "
    "your edits of the script are kept.",
)
UNUSED: Final = Code(
    "DDP902",
    "unused-suppression",
    "A suppression comment suppresses nothing.",
    "The finding is gone, or on another line. A comment `# nb2ddp: ignore[DDP101]` covers its own line; alone on a "
    "line, it covers the next one. Remove it, or it will hide the next finding.",
)
NOT_WRITTEN: Final = Code(
    "DDP903",
    "file-not-accessible",
    "A file cannot be read or written.",
    "The message gives the system's reason. The file that was there is unchanged.",
)

EDITED: Final = Code(
    "DDP904",
    "edited-by-hand",
    "A script or a launch file was edited since nb2ddp wrote it.",
    "The checksum in the file's line `convert again:` no longer matches. This is no error: the next conversion "
    "keeps the edits and adds the notebook's changes.",
)
CONFLICT: Final = Code(
    "DDP905",
    "edits-in-conflict",
    "The notebook changed the same lines as your edits, so no file was written.",
    "nb2ddp merges three versions: the file as it was written, your edits, and the new conversion. If both "
    "changed the same lines, you decide: --keep mine takes your lines, --keep new takes the notebook's. Or copy "
    "the new lines into the file yourself, beside yours if both can stay, and convert again; or make the edit in "
    "the notebook too. The written version comes from the cache folder of the machine that converted, or from a "
    "version of the notebook in git.",
)
FOREIGN: Final = Code(
    "DDP906",
    "not-ours-to-replace",
    "A file of that name exists that nb2ddp did not write for this notebook, so no file was written.",
    "Each file of nb2ddp begins with a comment `convert again:` that names its notebook. "
    "This file has none, or names another notebook. Choose another name, move the file "
    "away, or replace it with --keep nothing.",
)
OTHER_SETTINGS: Final = Code(
    "DDP907",
    "launch-settings-changed",
    "The launch file that several scripts share got other settings.",
    "One accelerate_config.yaml starts all scripts of its folder, so converting one notebook with other options "
    "changes it for all. Convert with the previous options, set them in pyproject.toml, or give the scripts "
    "separate folders.",
)
REMEMBERED: Final = Code(
    "DDP908",
    "options-remembered",
    "The options are those in the script's first lines, or differ from them.",
    "A conversion for which the command line has no options takes those in the script's line `convert again:`, below "
    "those of [tool.nb2ddp] in pyproject.toml. With any option on the command line, the last ones do not count.",
)
HIDDEN: Final = Code(
    "DDP909",
    "module-hidden",
    "A file beside the script has the name of a module that the script needs.",
    "Python searches the script's folder first: a `torch.py` or `wandb.py` there is imported instead of the "
    "package, and `python train.py` ends with an ImportError or an AttributeError. Rename the file.",
)

OWN_CODES: Final = {value.code: value for value in list(vars().values()) if isinstance(value, Code)}
