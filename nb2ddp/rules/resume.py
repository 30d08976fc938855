"""DDP211: With `--resume`, a script that is started again continues from its last complete checkpoint."""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from nb2ddp.facts.program import Program
from nb2ddp.rules.rule import Finding, rule
from nb2ddp.syntax.arguments import set_argument
from nb2ddp.syntax.edits import Edit, Replace
from nb2ddp.syntax.tree import argument

_GOES_ON = "would start over after a job that ended early; the script saves checkpoints and resumes from the last"
_UNSEEN = "starts over after a job that ended early: write it as trainer.train(), so that the script can resume it"


@rule("DDP211")
def training_goes_on(program: Program) -> Iterator[Finding]:
    if not program.options.resume:
        return
    tree = program.tree
    for call in program.training.calls:
        owner, name = tree.member(call.func) or (None, "")
        if name in ("evaluate", "predict"):
            continue
        if name == "train" and isinstance(owner, (cst.Name, cst.Attribute)) and isinstance(call.func, cst.Attribute):
            yield Finding(call, _GOES_ON, (_edit(program, call, f"last_checkpoint({tree.text(owner)})"),))
        else:
            yield Finding(call, _UNSEEN, todo=True)


def _edit(program: Program, call: cst.Call, checkpoint: str) -> Edit:
    given = argument(call, "resume_from_checkpoint", 0)
    if given is not None and given.keyword is None:
        return Replace(given.value, checkpoint)
    return set_argument(program.tree, call, "resume_from_checkpoint", checkpoint)
