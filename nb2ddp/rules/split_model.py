"""DDP104: A model split over several GPUs gets a warning, and is split only if one process runs."""

from __future__ import annotations

import re
from collections.abc import Iterator

from nb2ddp.facts.loading import is_split, plans
from nb2ddp.facts.program import Program
from nb2ddp.results import Severity
from nb2ddp.rules.rule import Finding, rule
from nb2ddp.syntax.edits import AddToSetup, Edit, SetKeyword

_PARALLEL = re.compile(r"torch\.nn\.(parallel\.)?DataParallel")
_ALONE = "one process spreads the model over all GPUs, which work in turn; started as several, the script ends at once"


@rule("DDP104", Severity.WARNING)
def model_split_over_gpus(program: Program) -> Iterator[Finding]:
    tree = program.tree
    if program.options.split_model:
        for call in program.loads[:1]:
            yield Finding(call, _ALONE, (AddToSetup("refuse_several_processes()", before_imports=True),), Severity.NOTE)
        return
    for call in program.loads:
        alone = [(name, f"None if world_size > 1 else {text}") for name, text in plans(tree, call)]
        edits: tuple[Edit, ...] = tuple(SetKeyword(call, name, value) for name, value in alone)
        if is_split(tree, call):
            yield Finding(
                call,
                "the notebook splits this model over its GPUs; started on several, the script puts a whole copy on"
                " each: if one GPU cannot hold it, start one process (python ...), which goes on to split it",
                edits=edits,
            )
    for call in program.execution.calls(_PARALLEL):
        said = "DataParallel spreads each process over all GPUs, which breaks the job: leave it out, DDP does the same"
        yield Finding(call, said, todo=True)
