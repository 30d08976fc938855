"""DDP204: Losses with in-batch negatives gather them over all ranks, which share the notebook's batches."""

from __future__ import annotations

import re
from collections.abc import Iterator

import libcst as cst

from nb2ddp.facts.micro_batch import GATHERING_LOSSES, shares_batches
from nb2ddp.facts.program import Program
from nb2ddp.results import Severity
from nb2ddp.rules.rule import Finding, rule
from nb2ddp.syntax.arguments import constant, passed, set_argument
from nb2ddp.syntax.edits import Edit, InsertBefore, SetKeyword, Wrap
from nb2ddp.syntax.tree import keyword

GATHER, CONFIG = "gather_across_devices", "accelerator_config"
_BATCH, _EVAL_BATCH = "per_device_train_batch_size", "per_device_eval_batch_size"
_DROP = "dataloader_drop_last"
_DEFAULT_BATCH = "8"
_MANY = "world_size > 1"
_PACKAGE = r"sentence_transformers\.(\w+\.)*"
#: Losses that compare the samples of one device's batch and cannot gather.
_LOCAL = re.compile(
    rf"{_PACKAGE}(Batch(All|Hard|SemiHard|HardSoftMargin)TripletLoss|MegaBatchMarginLoss|(Sparse)?(CoSENT|AnglE)Loss"
    rf"|ContrastiveTensionLossInBatchNegatives)|{_PACKAGE}cross_encoder\.(\w+\.)*(Cached)?MultipleNegativesRankingLoss"
)
#: Evaluators that write a CSV file wherever they run.
_EVALUATOR = re.compile(rf"{_PACKAGE}(?!Sequential|Sentence|Base|CE)\w+Evaluator")


@rule("DDP204")
def negatives_not_shared(program: Program) -> Iterator[Finding]:
    tree = program.tree
    for call in program.execution.calls(GATHERING_LOSSES):
        if keyword(call, GATHER) is None:
            message = "would find negatives in one GPU's part of the batch; the script gathers all"
            yield Finding(call, f"{tree.class_name(call.func)} {message}", (SetKeyword(call, GATHER, _MANY),))
    for config in program.training.arguments:
        if shares_batches(program.execution, config):
            yield from _share(program, config)
    for call in program.execution.calls(_LOCAL):
        yield Finding(
            call,
            f"{tree.class_name(call.func)} compares only the samples of one GPU: more processes change the loss; "
            "to keep the notebook's, train on one GPU",
            severity=Severity.WARNING,
        )
    if any(keyword(call, "evaluator") is not None for call in program.training.trainers):
        for call in program.execution.calls(_EVALUATOR):
            if keyword(call, "write_csv") is None and program.execution.runs(call):
                message = "every process would add its line to the evaluator's CSV file; in the script one does"
                yield Finding(call, message, (SetKeyword(call, "write_csv", "is_main_process"),))


def _share(program: Program, config: cst.Call) -> Iterator[Finding]:
    tree = program.tree
    given = passed(tree, config, CONFIG)
    if given is not None and "split_batches" in tree.text(tree.value(given.value)):
        return
    split = f'"split_batches": {_MANY}'
    settings = f"{{**{tree.text(given.value)}, {split}}}" if given is not None else f"{{{split}}}"
    size = _size(program, config, _BATCH)
    edits = list[Edit]()
    batch = f"share_batches({size})"
    if isinstance(tree.scope(config), (cst.Module, cst.FunctionDef)):
        name = program.name("shared_batch")
        comment = f"  # of all ranks together{f'; {size} samples in the notebook' if size.isdigit() else ''}"
        edits.append(InsertBefore(tree.statement(config), f"{name} = {batch}{comment}"))
        batch = name
    edits.append(set_argument(tree, config, _BATCH, batch, at_call=True))
    if any(keyword(call, "eval_dataset") is not None for call in program.training.trainers):
        evaluated = f"-(-{_size(program, config, _EVAL_BATCH)} // world_size) * world_size"  # a multiple of them
        edits.append(set_argument(tree, config, _EVAL_BATCH, evaluated, at_call=True))
    edits.append(set_argument(tree, config, CONFIG, settings, at_call=True))
    if constant(tree, config, _DROP) is not True:
        edits.append(Wrap(config, "keep_last_batches(", ")"))
    yield Finding(
        config,
        "more processes would compare other rows and drop incomplete batches; the script splits the notebook's "
        "own batches",
        tuple(edits),
    )


def _size(program: Program, config: cst.Call, field: str) -> str:
    given = passed(program.tree, config, field)
    return program.tree.text(given.value) if given is not None else _DEFAULT_BATCH
