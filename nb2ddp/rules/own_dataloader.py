"""DDP205: A `get_train_dataloader` of the notebook's own gives each rank its share; a loop over a
share gets a `TODO`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import libcst as cst

from nb2ddp.facts.program import Program
from nb2ddp.results import Severity
from nb2ddp.rules.batch import batch_of
from nb2ddp.rules.rule import Finding, rule
from nb2ddp.syntax.edits import InsertAbove, Replace, Wrap
from nb2ddp.syntax.tree import Tree, argument, method

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
