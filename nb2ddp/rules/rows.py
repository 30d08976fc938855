"""DDP414: Before each training the ranks compare their rows; where they differ, all take the main process's."""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from nb2ddp.facts.loading import ModelKind
from nb2ddp.facts.program import Program
from nb2ddp.rules.rule import Finding, rule
from nb2ddp.syntax.arguments import constant
from nb2ddp.syntax.edits import InsertAbove

#: Trainers that take no rows of texts but those of a data set of datasets.
_TABLES = frozenset("SFTTrainer UnslothTrainer DPOTrainer ORPOTrainer CPOTrainer KTOTrainer GRPOTrainer".split())
_SHARED = "each process may have prepared other rows; the script compares them, and takes the main process's"
_UNSEEN = "each process may train on other rows: write it as trainer.train(), so that the script can compare them"


@rule("DDP414")
def rows_of_each_process(program: Program) -> Iterator[Finding]:
    tree = program.tree
    if program.options.split_model:
        return
    for call in program.training.calls:
        owner, name = tree.member(call.func) or (call.args[0].value if call.args else call, "")
        if name in ("evaluate", "predict"):
            continue
        around = tree.inside_statement(call)
        if not isinstance(owner, (cst.Name, cst.Attribute)) or any(
            isinstance(above, (cst.Lambda, cst.BaseComp)) for above in around
        ):
            yield Finding(call, _UNSEEN, todo=True)
            continue
        written = set(map(tree.text, tree.of(cst.Call)))
        lines = [f"{function}({tree.text(owner)})" for function in _functions(program)]
        if edits := tuple(InsertAbove(tree.statement(call), line) for line in lines if line not in written):
            yield Finding(call, _SHARED, edits)


def _functions(program: Program) -> Iterator[str]:
    """Yield the functions of the setup block that a training's rows need."""
    tree, training = program.tree, program.training
    yield "share_rows"
    if program.model_kind is not ModelKind.DENSE_TEXT or not _TABLES.issuperset(training.trainer_classes):
        yield "share_listed_rows"
    steps = [constant(tree, config, "max_steps") for config in training.arguments]
    if training.trainer_classes == ["SFTTrainer"] and not any(isinstance(each, int) and each > 0 for each in steps):
        yield "count_repeated_rows"
