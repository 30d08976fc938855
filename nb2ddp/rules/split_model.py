"""DDP104: A model split over several GPUs gets a warning, and is split only if one process runs.

DDP needs a whole copy of the model on every GPU. A notebook that asks for `balanced` may do so because the model does
not fit on one.

With `split-model = true` in pyproject.toml the script trains as one process on all GPUs, and ends at once if a launcher
starts several.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from nb2ddp.facts.loading import is_split, plans
from nb2ddp.facts.program import Program
from nb2ddp.options import Options
from nb2ddp.results import Severity
from nb2ddp.rules.rule import Example, Finding, Rule
from nb2ddp.syntax.edits import AddToSetup, Edit, SetKeyword

_PARALLEL = re.compile(r"torch\.nn\.(parallel\.)?DataParallel")
_ALONE = "one process spreads the model over all GPUs, which work in turn; started as several, the script ends at once"


def find(program: Program) -> Iterator[Finding]:
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


RULE = Rule(
    name="model-split-over-gpus",
    find=find,
    severity=Severity.WARNING,
    examples=(
        Example(
            """\
from unsloth import FastModel
model, tokenizer = FastModel.from_pretrained(
    "unsloth/gemma-4-31B",
    max_memory = {0: "14GiB", 1: "14GiB"},
    load_in_4bit = True,
)
""",
            """\
from unsloth import FastModel
model, tokenizer = FastModel.from_pretrained(
    "unsloth/gemma-4-31B",
    max_memory = None if world_size > 1 else {0: "14GiB", 1: "14GiB"},
    load_in_4bit = True,
)
""",
        ),
        Example(
            'from unsloth import FastModel\nmodel, t = FastModel.from_pretrained("m", max_memory = {0: "14GiB"})\n',
            reported=True,
            options=Options(split_model=True),
        ),
        Example('from unsloth import FastModel\nmodel, t = FastModel.from_pretrained("m", device_map = "auto")\n'),
    ),
)
