"""DDP203: The loss of a step is averaged over the tokens, or samples, of all ranks."""

from __future__ import annotations

import re
from collections.abc import Iterator

import libcst as cst

from nb2ddp.facts.loading import ModelKind, has_new_head
from nb2ddp.facts.program import Program
from nb2ddp.facts.training import TOKEN_TRAINERS
from nb2ddp.results import Severity
from nb2ddp.rules.batch import ACCUMULATION, batch_of
from nb2ddp.rules.rule import Finding, rule
from nb2ddp.syntax.arguments import passed, set_argument
from nb2ddp.syntax.edits import Wrap
from nb2ddp.syntax.tree import Tree, keyword, method

FIELD = "average_tokens_across_devices"
COUNT = "num_items_in_batch"
#: What makes a model with new weights.
_FROM_CONFIG = re.compile(r"transformers(\.\w+)*\.(\w+\.(_?from_config)|[A-Z]\w*For\w+)")
#: What a loss counts that knows how its step is divided.
_DIVIDES = re.compile(f"world_size|num_processes|{ACCUMULATION}")
#: Training arguments of trainers whose loss is a mean over tokens.
_TOKEN_CONFIGS = ("SFTConfig", "UnslothTrainingArguments", "Seq2SeqTrainingArguments")

_FALSE = (
    "transformers 5 would multiply the evaluation loss by the number of processes, which is a mean already; the script"
    f" sets {FIELD} to False"
)
_TRUE = f"{FIELD} is not set: older transformers would weigh each process alike, not each token; the script sets it"
_FALSE_TO_TRUE = (
    f"{FIELD} is False, which does nothing on one GPU and on several weighs each process alike, not each token; the"
    " script sets it to True"
)
_CLASSIFIER = (
    "transformers 5 takes this classifier's loss for a sum: evaluation losses are multiplied by the number of"
    " processes, gradients by that of micro-batches in a step; set model.accepts_loss_kwargs = False after making it"
)
_MULTIPLIES = (
    "transformers 5 multiplies the evaluation losses of an encoder-decoder model by the number of processes; its"
    " training and metrics are the notebook's: divide these losses to compare them"
)
_SUMMED = (
    "this loss is a mean of a micro-batch, and Trainer adds up those of a step, of which there are fewer here; the"
    " script multiplies by the notebook's number of them over its own"
)
_SMALLER = (
    "{} processes cannot share the {} of a step equally, and means of smaller ones weigh rows of unequal length"
    " otherwise; choose {} to keep the notebook's losses"
)
_OWN = (
    "Trainer adds up this loss over a step's micro-batches, and DDP averages it over the processes: multiply what is"
    f" divided by {COUNT} by world_size, and a mean of a micro-batch by the notebook's {ACCUMULATION} /"
    f" self.args.{ACCUMULATION}"
)
_UNUSED = (
    "Trainer adds up this loss over a step's micro-batches, whose number changes with that of processes: return a sum"
    f" over tokens divided by {COUNT}"
)


@rule("DDP203")
def tokens_not_averaged(program: Program) -> Iterator[Finding]:
    tree, training = program.tree, program.training
    plain = "Trainer" in training.trainer_classes
    loader = _loader_of_classifier(program) if plain else ""
    summed = False
    for call in training.arguments:
        value = _value(program, call, loader)
        given = passed(tree, call, FIELD)
        is_false = given is not None and tree.literal(given.value) is False
        if value == "True" and (given is None or is_false):
            yield Finding(call, _FALSE_TO_TRUE if is_false else _TRUE, (set_argument(tree, call, FIELD, value),))
        elif value == "False" and given is None:
            yield Finding(call, _FALSE, (set_argument(tree, call, FIELD, value),))
        elif given is None and tree.class_name(call.func) == "TrainingArguments" and loader not in ("", "unsloth"):
            summed = True
    for load in [load for load in program.loads if has_new_head(tree, load)][:1] if summed else ():
        yield Finding(load, _CLASSIFIER, todo=True)
    for made in program.execution.calls(_FROM_CONFIG) if plain and not _says_how(tree) else ():
        if has_new_head(tree, made):
            yield Finding(made, _CLASSIFIER, todo=True)
    yield from _own_losses(program)
    yield from _multiplied(program)


def _value(program: Program, call: cst.Call, loader: str) -> str:
    """What a config must be told, as code; "" where nothing is known to be right.

    Args:
        program: the notebook.
        call: builds the config.
        loader: the package that loads a classifier; see `_loader_of_classifier`.
    """
    training, config = program.training, program.tree.class_name(call.func)
    is_general = config == "TrainingArguments"
    is_decoder = "Trainer" in training.trainer_classes and program.model_kind is not ModelKind.ENCODER
    counts_tokens = is_decoder or training.has_trainer(*TOKEN_TRAINERS)
    if not is_general and not config.endswith(_TOKEN_CONFIGS):
        return ""
    if is_general and loader == "unsloth":
        return "False"
    return "True" if not is_general or (counts_tokens and not loader) else ""


def _multiplied(program: Program) -> Iterator[Finding]:
    """Evaluations of encoder-decoder models, whose loss is a mean of a batch however many tokens they are told."""
    training = program.training
    for call, name in zip(training.trainers, training.trainer_classes, strict=True):
        translates = name == "Seq2SeqTrainer" or (name == "Trainer" and program.model_kind is ModelKind.ENCODER_DECODER)
        if translates and keyword(call, "eval_dataset") is not None:
            yield Finding(call, _MULTIPLIES, severity=Severity.WARNING)


def _own_losses(program: Program) -> Iterator[Finding]:
    """Losses of the notebook's own: methods of its trainers, and functions that a trainer is given."""
    tree = program.tree
    numbers = {batch_of(program, config)[1] for config in program.training.arguments}
    steps = numbers.pop() if len(numbers) == 1 else ...
    for function in tree.live(cst.FunctionDef):
        count, uses = _count(tree, function)
        is_own = count and _is_method(tree, function) and not _DIVIDES.search(tree.text(function))
        if not is_own or _hands_on(tree, function, uses):
            continue
        losses = [] if uses or not isinstance(steps, int) else _plain_losses(tree, function)
        factor = f" * (1 if {count} is None else {steps} / self.args.{ACCUMULATION})"
        edits = tuple(_multiply(loss, factor) for loss in losses)
        yield Finding(function, _SUMMED if edits else _OWN, edits, todo=not edits)
        processes = program.options.launch.processes
        if edits and isinstance(steps, int) and steps % processes:
            batches = "one micro-batch" if steps == 1 else f"{steps} micro-batches"
            fitting = "one process" if steps == 1 else f"a number of processes that divides {steps}"
            yield Finding(function, _SMALLER.format(processes, batches, fitting), severity=Severity.WARNING)
    for given in dict.fromkeys(map(tree.definition, tree.given("compute_loss_func"))):
        if isinstance(given, cst.FunctionDef) and not _count(tree, given)[1]:
            yield Finding(given, _UNUSED, todo=True)


def _is_method(tree: Tree, function: cst.FunctionDef) -> bool:
    """Whether a function is the `compute_loss` of a trainer that counts items (TRL's others do not)."""
    owner = tree.scope(function)
    bases = [tree.class_name(base.value) for base in owner.bases] if isinstance(owner, cst.ClassDef) else []
    counts = any(base == "Trainer" or base.endswith(TOKEN_TRAINERS) for base in bases)
    return function.name.value == "compute_loss" and counts


def _count(tree: Tree, function: cst.FunctionDef) -> tuple[str, list[cst.Name]]:
    """How a loss asks for the number of items, as code, "" where it cannot; and where it does."""
    options = function.params.star_kwarg
    is_named = any(param.name.value == COUNT for param in tree.within(function.params, cst.Param))
    name = COUNT if is_named or options is None else options.name.value
    uses = [use for use in tree.loads(name) if tree.function(use) is function]
    return COUNT if is_named else f'{name}.get("{COUNT}")' if options is not None else "", uses


def _hands_on(tree: Tree, function: cst.FunctionDef, uses: list[cst.Name]) -> bool:
    """Whether the number of items only goes to the library's `compute_loss`, whose loss nothing is added to."""
    changed = [*tree.within(function, cst.BinaryOperation), *tree.within(function, cst.AugAssign)]
    calls = [tree.around(use, cst.Call) for use in uses]
    return bool(calls) and not changed and all(call is not None and method(call) == "compute_loss" for call in calls)


def _plain_losses(tree: Tree, function: cst.FunctionDef) -> list[cst.BaseExpression]:
    """What a `compute_loss` returns in training, where `return_outputs` only chooses what is returned; else nothing."""
    asked = [use for use in tree.loads("return_outputs") if tree.function(use) is function]
    tests = [tree.parents[use] for use in asked]
    if not all(isinstance(test, (cst.If, cst.IfExp)) for test in tests):
        return []
    returned = [each.value for each in tree.within(function, cst.Return) if tree.owner(each) is function]
    losses = [each.orelse if isinstance(each, cst.IfExp) and each in tests else each for each in returned if each]
    return [loss for loss in losses if not isinstance(loss, cst.Tuple)]


def _multiply(loss: cst.BaseExpression, factor: str) -> Wrap:
    is_whole = isinstance(loss, (cst.Name, cst.Call, cst.Attribute, cst.Subscript)) or bool(loss.lpar)
    return Wrap(loss, "", factor) if is_whole else Wrap(loss, "(", f"){factor}")


def _loader_of_classifier(program: Program) -> str:
    """The package that loads a classifier; "" where none does, or where the notebook says how its loss is to be read.

    Unsloth counts no items in the training of such a head, so that the loss stays a mean there; transformers counts.
    """
    tree = program.tree
    if _says_how(tree):
        return ""
    packages = [tree.qualified(call.func).partition(".")[0] for call in program.loads if has_new_head(tree, call)]
    return next(iter(packages), "")


def _says_how(tree: Tree) -> bool:
    """True where the notebook itself says how a trainer is to read its loss."""
    return bool(tree.given("compute_loss_func") or tree.attributes("accepts_loss_kwargs"))
