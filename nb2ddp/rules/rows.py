"""Which rows and negatives a process trains on."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import libcst as cst

from nb2ddp.facts.loading import ModelKind
from nb2ddp.facts.micro_batch import GATHERING_LOSSES, shares_batches
from nb2ddp.facts.program import Program
from nb2ddp.results import Severity
from nb2ddp.rules.batch import batch_of
from nb2ddp.rules.rule import Finding, rule
from nb2ddp.syntax.arguments import constant, passed, set_argument
from nb2ddp.syntax.edits import Edit, InsertAbove, InsertBefore, Replace, SetKeyword, Wrap
from nb2ddp.syntax.tree import Tree, argument, keyword, method

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
    """Losses with in-batch negatives gather them over all ranks, which share the notebook's batches."""
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


_METHOD = "get_train_dataloader"
_SHARED_OUT = ("get_train_dataloader", "get_eval_dataloader", "get_test_dataloader")
#: `accelerator.prepare(...)`, and what the Trainer's own method gives.
_SHARING = ("prepare", "prepare_data_loader", _METHOD)
_SIZE = "train_batch_size"
_SHARES = "each rank would train on all rows of this loader; in the script it trains on its share"
_STOPS = f"get_train_dataloader needs batch_size = {{}}.args.{_SIZE} and accelerator.prepare(...)"
_UNKNOWN = (
    "nothing shows that this loader has the per-device batch of the training arguments, so several processes would"
    f" train on other rows: {_STOPS.format('self')}; the script stops with several"
)
_AROUND = re.compile(r"enumerate|iter|(.*\.)?tqdm|tqdm(\.\w+)*")
_PART = "this loader gives each rank only its share of the rows: use a DataLoader of the data set itself"
_UNEQUAL = (
    "a mask picks another number of values on each rank, which cannot be gathered: return a value for each token, with"
    " -100 where the mask is False"
)
_MASK = re.compile(r"[=!<>]=|[<>&|~]|\.(ne|eq|bool|isin)\(")


@rule("DDP205")
def data_not_shared_out(program: Program) -> Iterator[Finding]:
    """A `get_train_dataloader` of the notebook's own gives each rank its share; a loop over a share gets a `TODO`."""
    tree = program.tree
    for function in tree.live(cst.FunctionDef):
        if function.name.value == _METHOD and isinstance(tree.scope(function), cst.ClassDef):
            returns = [each for each in tree.within(function, cst.Return) if tree.owner(each) is function]
            loaders = [each.value for each in returns if each.value is not None]
            edits = [Wrap(loader, "self.accelerator.prepare(", ")") for loader in loaders]
            yield from _shared_out(program, function, "self", edits, returns)
    for assign in filter(tree.is_live, tree.setting(_METHOD)):
        owner = cst.ensure_type(assign.targets[0].target, cst.Attribute).value
        trainer = tree.text(owner)
        wrapped = Wrap(assign.value, f"lambda: {trainer}.accelerator.prepare((", ")())")
        edits = [wrapped] if program.training.is_trainer(owner) else []  # else a class of trainers
        yield from _shared_out(program, assign, trainer, edits, [assign])
    yield from (Finding(masked, _UNEQUAL, todo=True) for masked in _masked(tree))
    loops = [loop.iter for loop in tree.live(cst.For) if not tree.within(loop.body, cst.Break)]
    for node in [*loops, *(comprehended.iter for comprehended in tree.live(cst.CompFor))]:
        loader = next((call for call in _loaders(tree, node) if _is_trainers(program, call)), None)
        if loader is not None:  # one that is made before the end of training is a share after it too
            yield Finding(node if program.execution.runs(node) else loader, _PART, todo=True)


def _masked(tree: Tree) -> Iterator[cst.CSTNode]:
    """What depends on a mask in the functions that prepare the logits of an evaluation."""
    for given in tree.given("preprocess_logits_for_metrics"):
        function = tree.definition(given) or given
        for picked in tree.within(function, cst.Subscript):
            indices = [each.slice.value for each in picked.slice if isinstance(each.slice, cst.Index)]
            if any(_MASK.search(tree.text(tree.value(index))) for index in indices):
                yield picked
        yield from (call for call in tree.within(function, cst.Call) if method(call) in ("masked_select", "nonzero"))


def _shared_out(
    program: Program, node: cst.FunctionDef | cst.Assign, trainer: str, shared: list[Wrap], lines: Sequence[cst.CSTNode]
) -> Iterator[Finding]:
    """Let a loader share its rows out, with the batch of the training arguments; else stop several processes.

    Args:
        program: the notebook.
        node: makes the loader.
        trainer: the trainer there, as code.
        shared: hands the loader to accelerate; empty where that is not known.
        lines: where the script stops otherwise.
    """
    tree = program.tree
    calls = [call for part in tree.made_of(node) for call in tree.within(part, cst.Call)]
    if any(method(call) in _SHARING or f"needs batch_size = {trainer}" in tree.text(call) for call in calls):
        return
    sizes = [argument(call, "batch_size", 1) for call in calls if tree.class_name(call.func).endswith("DataLoader")]
    notebook = {batch_of(program, config)[0] for config in program.training.arguments}
    own = [size.value for size in sizes if size is not None and not tree.text(size.value).endswith(_SIZE)]
    is_here = all(tree.start(node) < tree.start(size) < tree.span(node)[1] for size in own)
    if shared and sizes and None not in sizes and is_here and all({tree.fixed(size)} == notebook for size in own):
        replaced = [Replace(size, f"{trainer}.args.{_SIZE}") for size in own]
        yield Finding(node, _SHARES, (*shared, *replaced))
    else:
        stop = f'if world_size > 1:\n    raise RuntimeError("{_STOPS.format(trainer)}")'
        edits = tuple(InsertAbove(tree.statement(line), stop) for line in lines)
        yield Finding(node, _UNKNOWN, edits, severity=Severity.WARNING)


def _is_trainers(program: Program, call: cst.Call) -> bool:
    return isinstance(call.func, cst.Attribute) and program.training.is_trainer(call.func.value)


def _loaders(tree: Tree, node: cst.BaseExpression) -> list[cst.Call]:
    """The calls that give the loader which is gone through, by itself, or in a count or a progress bar."""
    while isinstance(node, cst.Call) and _AROUND.fullmatch(tree.qualified(node.func)) and node.args:
        node = node.args[0].value
    made = tree.values(node)
    return [each for each in made if isinstance(each, cst.Call) and method(each) in _SHARED_OUT]


#: Trainers that take no rows of texts but those of a data set of datasets.
_TABLES = frozenset("SFTTrainer UnslothTrainer DPOTrainer ORPOTrainer CPOTrainer KTOTrainer GRPOTrainer".split())
_SHARED = "each process may have prepared other rows; the script compares them, and takes the main process's"
_UNSEEN = "each process may train on other rows: write it as trainer.train(), so that the script can compare them"


@rule("DDP414")
def rows_of_each_process(program: Program) -> Iterator[Finding]:
    """Before each training the ranks compare their rows; where they differ, all take the main process's."""
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
