"""DDP406: one experiment run for the job."""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from nb2ddp.program import Finding, Program
from nb2ddp.rule import Example, Rule

_CALLS = frozenset({"wandb.init", "wandb.login", "wandb.log", "wandb.Table"})


def find(program: Program) -> Iterator[Finding]:
    tree = program.tree
    for call in tree.of(cst.Call):
        name = tree.qualified(call.func)
        if name in _CALLS and tree.is_live(call) and program.runs_before_end(call):
            yield Finding(call, f"{name} in every process", needs=frozenset({"wandb"}), fixed=True)
            return


RULE = Rule(
    code="DDP406",
    name="run-in-every-process",
    summary="Weights & Biases is switched off in all processes but the main one, in the setup block.",
    why="`wandb.init` in every process makes one run a process. With WANDB_MODE=disabled its calls do nothing, so the "
    "notebook's code stays as it is.",
    find=find,
    examples=(
        Example('import wandb\nwandb.init(project = "tuning")\ntrainer.train()\n', reported=True),
        Example("import wandb\ntrainer.train()\nwandb.finish()\n"),
    ),
)
