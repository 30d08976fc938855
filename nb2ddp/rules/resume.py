"""DDP211: With `--resume`, a script that is started again continues from its last complete checkpoint.

Rented machines, SLURM and hosted notebooks end jobs early, and transformers saves a checkpoint only every 500 steps.
With the option a training saves itself every ten minutes, at SIGTERM, and when it ends. The resumed training has the
rows, order, learning rate, optimizer state and random numbers of an uninterrupted one.

The script skips a checkpoint that is incomplete or belongs to another training, and says so. Each training of a script
has its own folder; a finished one is not repeated. The code after the training runs again from its start.
"""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from nb2ddp.facts.program import Program
from nb2ddp.options import Options
from nb2ddp.rules.rule import Example, Finding, Rule
from nb2ddp.syntax.arguments import set_argument
from nb2ddp.syntax.edits import Edit, Replace
from nb2ddp.syntax.tree import argument

_GOES_ON = "would start over after a job that ended early; the script saves checkpoints and resumes from the last"
_UNSEEN = "starts over after a job that ended early: write it as trainer.train(), so that the script can resume it"


def find(program: Program) -> Iterator[Finding]:
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


_TRAINER = "from trl import SFTTrainer\ntrainer = SFTTrainer(model)\n"
_RESUME = Options(resume=True)

RULE = Rule(
    name="training-goes-on",
    find=find,
    examples=(
        Example(
            _TRAINER + "trainer.train()\n",
            _TRAINER + "trainer.train(resume_from_checkpoint=last_checkpoint(trainer))\n",
            options=_RESUME,
        ),
        Example(
            _TRAINER + "trainer.train(True)\n",
            _TRAINER + "trainer.train(last_checkpoint(trainer))\n",
            options=_RESUME,
        ),
        Example(_TRAINER + "trainer.train()\n"),
        Example(_TRAINER + "trainer.train(resume_from_checkpoint = True)\n"),
    ),
)
