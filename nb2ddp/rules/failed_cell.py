"""DDP008: A cell that failed when the notebook was saved gets a `TODO`: the script has its code, and may stop there."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator

from nb2ddp.facts.program import Program
from nb2ddp.results import Severity
from nb2ddp.rules.rule import Finding, rule

_ELSEWHERE = re.compile(
    r"(?is)KeyboardInterrupt|NameError|(ModuleNotFound|Import)Error|.*(\bFailed to import\b|"
    r"\bout of (memory|resource)\b|OutOfMemory|MemoryError|allocate memory|enough GPU RAM|No space left|StorageFull|"
    r"the disk is full|\babruptly\b|killed by signal|NVIDIA driver|\bneed a GPU|update Unsloth|no (CUDA|GPU)s?\b|"
    r"\berror loading\b.*\bdll\b|cannot open shared object|already added LoRA)"
)
#: What an error of the Hub begins with: `(Request ID: Root=...)`.
_REQUEST = re.compile(r"\(Request ID: [^()]*\)\s*")
_FAILED = "this cell failed when the notebook was saved ({}), and the script has it: run the notebook again and save it"
_LOST = "this cell failed when the notebook was saved ({}): if it fails again, the script stops here, after training"


@rule("DDP008", Severity.WARNING)
def failed_when_saved(program: Program) -> Iterator[Finding]:
    lines = {
        cell: [
            line
            for line in program.lines_of(cell.number)
            if program.tree.is_live(line) and not program.installs.covers(line)
        ]
        for cell in program.code_cells
    }
    last = max((cell.number for cell, own in lines.items() if own), default=0)
    for cell, own in lines.items():
        if not own or not cell.failed or _ELSEWHERE.match(cell.failed):
            continue
        needed = [line for line in own if program.training.is_before_end(line)]
        error = textwrap.shorten(_REQUEST.sub("", cell.failed), 90, placeholder="...")
        if needed:
            yield Finding(needed[0], _FAILED.format(error), todo=True)
        elif cell.number != last:
            yield Finding(own[0], _LOST.format(error), todo=True)
