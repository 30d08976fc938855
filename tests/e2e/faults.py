"""Faults: small changes to scripts without a fault; fixtures/faults/faults.toml lists them."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import tomllib

from nb2ddp.convert import convert_source

if TYPE_CHECKING:
    from nb2ddp.rehearsal.plan import Plan
    from nb2ddp.rehearsal.verdict import Verdict

FOLDER = Path(__file__).resolve().parents[2] / "fixtures" / "faults"
NOTEBOOKS = FOLDER.with_name("notebooks")
GOOD = ("train", "grpo", "embeddings")

ENDS, WAITS, CALLS = "reaches its end", "no process waits forever", "same collective calls, in the same order"
ROWS, LOSSES = "same global batch, same rows", "same losses and gradient norms"
WEIGHTS, REWARDS = "all ranks hold the same weights at the end", "rewards agree"
WRITER, DEVICE = "each file, program and service is used by one process", "each process has its own GPU"
AFTER = "after training only the main process continues"


@functools.cache
def script(name: str) -> str:
    """Return a script without a fault: written by hand, or converted from a notebook."""
    if name in GOOD:
        return (FOLDER / f"{name}.py").read_text(encoding="utf-8")
    text = (NOTEBOOKS / f"{name}.ipynb").read_text(encoding="utf-8")
    return next(iter(convert_source(text, name).files.values()))


class Fault(NamedTuple):
    """A script, the questions of which one must show the fault, its line, and the replacements that add it."""

    script: str
    asked: list[str]
    line: str
    edits: list[tuple[str, str]]

    def text(self) -> str:
        """Return the script with the fault."""
        text = script(self.script)
        for before, after in self.edits:
            assert text.count(before) == 1, before
            text = text.replace(before, after)
        return text


FAULTS = {
    name: Fault(**row) for name, row in tomllib.loads((FOLDER / "faults.toml").read_text(encoding="utf-8")).items()
}


def is_found(fault: Fault, plan: Plan, verdict: Verdict) -> bool:
    """Return whether one of a fault's questions shows it at its line."""
    shown = [plan.source(place.line) for row in verdict.faults if row.asked in fault.asked for place in row.places]
    return verdict.code == 1 and any(fault.line in line for line in shown)
