"""Rules for the batch, its rows and its loss: which part of a step each process takes."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from functools import cached_property

import libcst as cst
from packaging.version import Version

from nb2ddp.facts.loading import ModelKind, has_new_head
from nb2ddp.facts.micro_batch import GATHERING_LOSSES, shares_batches, why_shape_counts
from nb2ddp.facts.program import Program
from nb2ddp.facts.releases import available
from nb2ddp.facts.training import TOKEN_TRAINERS
from nb2ddp.facts.values import number, rows_written, values
from nb2ddp.rules.rule import Finding, Findings, rule, todo, trained, warning
from nb2ddp.syntax.arguments import Passed, constant, is_closed, passed
from nb2ddp.syntax.edits import Edit, InsertAbove, InsertBefore, SetKeyword, Wrap, set_argument
from nb2ddp.syntax.tree import Tree, argument, keyword, method
from nb2ddp.toml import tables

PER_DEVICE, ACCUMULATION = "per_device_train_batch_size", "gradient_accumulation_steps"
_FIELDS = (PER_DEVICE, ACCUMULATION)
#: The memory of the notebook's GPU that a split assumes by default, in gigabytes.
_DEFAULT_MEMORY = 15
#: The fields of a step that a config does not set, and their values.
_DEFAULTS = tables(__file__)["defaults"]
#: Fields whose effect depends on the number of processes.
_DOUBTS = tables(__file__)["doubt"]
#: Configs whose step counts completions, several for each prompt (trl/trainer/grpo_config.py).
_COMPLETION_CONFIGS = ("GRPOConfig", "RLOOConfig")
_PROCESSES = re.compile(r"device_count\(|get_world_size\(|\bnum_processes\b|WORLD_SIZE|\bn_gpu\b")
_GROWS = "each process would train on a whole batch, so more GPUs would change the training; the script splits it"
_NO_GPU, _TOO_SMALL = "whose GPU is not known", "whose GPU ran out of memory"
_NOT_SPLIT = (
    f"so it is not split: each process trains on a whole batch; call the class by its name, with {PER_DEVICE} and"
    f" {ACCUMULATION}"
)
_NOT_SEEN = (
    "the batch of this training is unknown, so it is not split: each process trains on a whole batch; pass"
    f" {PER_DEVICE} and {ACCUMULATION} to training arguments in the notebook"
)
_TOO_LATE = "is set too late to be split, so each process takes the whole batch: pass it where the arguments are built"
_KTO = (
    "KTO compares the rows of one GPU with each other, which fails with a single row: start fewer processes, so that"
    " each has at least 2 rows a step"
)
_DIVIDED = (
    "the notebook computes its batch from the number of GPUs, and the script splits it again, so the global batch"
    " changes: write the batch of one GPU as a number"
)


class Batch:
    """The batch of training arguments, and the runtime call that splits it.

    Args:
        program: the notebook.
        config: the call that builds the training arguments.

    Attributes:
        given: the values that the call passes for batch, accumulation and, if the step counts completions, completions
            of one prompt; None for a value that it does not pass.
        texts: the same values as code, with the library's defaults.
        numbers: the same values as numbers; None for an unknown value.
    """

    def __init__(self, program: Program, config: cst.Call) -> None:
        self.program, self.tree, self.config = program, program.tree, config
        family = self.tree.family(config.func)
        self.counts_completions = family.endswith(_COMPLETION_CONFIGS)
        defaults = dict(_DEFAULTS["trl" if family.startswith("trl.") else "transformers"])
        if self.counts_completions:
            defaults |= _DEFAULTS["completions"]
        found = (passed(self.tree, config, field) for field in defaults)
        self.given = [each if each and self.tree.literal(each.value) is not None else None for each in found]
        pairs = list(zip(self.given, defaults.values(), strict=True))
        self.texts = [self.tree.text(given.value) if given else str(default) for given, default in pairs]
        self.numbers = [_positive(self.tree, given) if given else default for given, default in pairs]

    @property
    def why_unknown(self) -> str:
        """Why the batch is unknown; "" if it is known."""
        tree, training, is_missing = self.tree, self.program.training, None in self.given[:2]
        is_chosen = training.is_chosen_config(self.config)
        classes = [tree.definition(base) for base in tree.bases(self.config.func)]
        texts = [tree.text(each) for each in classes if isinstance(each, cst.ClassDef)]
        if is_missing and not is_closed(tree, self.config):
            return "the batch may come from **keywords"
        if is_chosen and any(name.endswith(_COMPLETION_CONFIGS) for name in tree.names_read):
            return "the batch may count completions or samples"
        if is_missing and (is_chosen or any(field in text for text in texts for field in _FIELDS)):
            return "the batch is set in the class"
        return ""

    @cached_property
    def why_kept(self) -> str:
        """Why the per-device batch does not grow with the GPU's memory, if no option sets it; "" if it grows."""
        program, per_device = self.program, self.given[0]
        if program.options.batch is not None or self.counts_completions:
            return ""
        if program.gpu is None:
            return _TOO_SMALL if program.ran_out_of_memory else _NO_GPU
        if per_device is not None and self.tree.fixed(per_device.value) is ...:
            return "which computes it"
        resumes = "whose checkpoint sets it again" if _resumes(program) else ""
        return why_shape_counts(program.training, program.model_kind, program.loads, self.config) or resumes

    def split(self, values: list[str]) -> str:
        """Return the call of the runtime that splits these values of batch, accumulation and completions."""
        size, gpu = self.program.options.batch, self.program.gpu
        name = "split_completions" if self.counts_completions else "split_batch"
        arguments = ", ".join(values)
        if isinstance(size, int):
            return f"{name}({arguments}, largest={size})"
        if self.counts_completions:
            return f"{name}({arguments})"
        if size == "notebook" or gpu is None or self.why_kept:
            return f"{name}({arguments}, largest={values[0]})"
        memory = f", notebook_gpu={gpu.gigabytes}e9" if gpu.gigabytes != _DEFAULT_MEMORY else ""
        return f"{name}({arguments}{memory})"

    @property
    def step(self) -> tuple[int, int]:
        """The samples or completions of the notebook's step, and those of one prompt; 0 if unknown."""
        known = [each for each in self.numbers if each is not None]
        if len(known) < len(self.numbers):
            return 0, 0
        per_device, accumulation, group = [*known, 1][:3]
        return (per_device if per_device * accumulation % group == 0 else group) * accumulation, group  # as Unsloth

    def amount(self, count: int | None = None) -> str:
        """Return a number of samples or completions in words."""
        unit = "completion" if self.counts_completions else "sample"
        return f"{count} {unit}" if count == 1 else f"{count or ''} {unit}s".strip()

    @property
    def comment(self) -> str:
        """The comment on the batch: the notebook's number, which holds for any number of processes."""
        total, why = self.step[0], self.why_kept
        if not total:
            return f"the notebook's {self.amount()} a step"
        return f"{self.amount(total)} a step in the notebook{f', {why}' if why in (_NO_GPU, _TOO_SMALL) else ''}"


def _positive(tree: Tree, given: Passed) -> int | None:
    """Return the positive number that is passed, or None."""
    found = number(tree, given.value)
    return int(found) if found is not None and found > 0 else None


def _resumes(program: Program) -> bool:
    """Return whether the first training resumes another run's checkpoint, with a transformers that takes its batch.

    `train` of transformers 4 sets `_train_batch_size` to the checkpoint's, but not accumulation (trainer.py, 4.56.2).
    """
    first = next((call for call in program.training.calls if method(call) == "train"), None)
    given = None if first is None else argument(first, "resume_from_checkpoint", 0)
    named = None if given is None else program.tree.literal(given.value)
    if named is not True and not isinstance(named, str):
        return False
    *_, release = available(program.tree, program.text, "transformers") or ("5",)
    return Version(release) < Version("5")


def split_of(program: Program, config: cst.Call) -> str | None:
    """Return the call that splits a config's batch, as code with numbers only; None if one of them is unknown.

    The text is empty if the batch is a pool of negatives, which is not split.
    """
    if shares_batches(program.execution, config):
        return ""
    batch = Batch(program, config)
    return None if batch.why_unknown or None in batch.numbers else batch.split([str(each) for each in batch.numbers])


@rule("DDP201")
def batch_not_split(program: Program) -> Findings:
    """The notebook's global batch (per-device batch x accumulation) is split over the ranks."""
    if program.options.split_model and not isinstance(program.options.batch, int):
        return  # one process takes the whole batch
    tree, training = program.tree, program.training
    for config in training.arguments:
        batch = Batch(program, config)
        if shares_batches(program.execution, config) or _is_split(tree, batch.given[0]):
            continue
        if why := batch.why_unknown:
            yield todo(config, f"{why}, {_NOT_SPLIT}")
            continue
        why = batch.why_kept
        limit = f", with at most the per-device batch of the notebook, {why} (--batch sets it)" if why else ""
        yield Finding(config, f"{_GROWS}{limit}", *_edits(batch))
        yield from _doubts(batch)
    unseen = [call for call in training.trainers if not any(each.star for each in call.args)]
    if training.arguments:
        unseen = [call for call in unseen if argument(call, "args", 1) is None]
    elif not training.trainers:
        unseen = [call for call in training.calls if method(call) == "train"]
    yield from (todo(call, _NOT_SEEN) for call in unseen)
    for attribute in (each for field in _FIELDS for each in tree.attributes(field)):
        is_set = isinstance(tree.parents[attribute], (cst.AssignTarget, cst.AugAssign)) and tree.is_live(attribute)
        owner = attribute.value
        if is_set and (tree.value(owner) in training.arguments or tree.text(owner).endswith("trainer.args")):
            yield todo(attribute, f"{attribute.attr.value} {_TOO_LATE}")


def _is_split(tree: Tree, per_device: Passed | None) -> bool:
    """Return whether the batch already comes from a split: the notebook has been converted before."""
    if per_device is None:
        return False
    bound = tree.definition(per_device.value)
    made = bound.value if isinstance(bound, cst.Assign) else per_device.value
    return tree.text(made).startswith(("split_batch(", "split_completions("))


def _edits(batch: Batch) -> Iterator[Edit]:
    """Yield the edits that split the batch: on a separate line above, or in place."""
    program, tree, config = batch.program, batch.tree, batch.config
    split, arguments = batch.split(batch.texts), program.training.arguments
    holders = {given.holder for given in batch.given[:2] if given} or {config}
    at_call = len(arguments) > 1 or len(holders) > 1
    names = [f"{split}[0]", f"{split}[1]"]
    beside = [other for other in arguments if tree.statement(other) is tree.statement(config)]
    inner = (cst.Lambda, cst.BaseComp, cst.Param)
    if len(beside) == 1 and not any(isinstance(above, inner) for above in tree.inside_statement(config)):
        names = [program.name("per_device_batch"), program.name("accumulation")]
        statement = tree.statement(config if at_call else holders.pop())
        yield InsertAbove(statement, f"{', '.join(names)} = {split}  # {batch.comment}")
    for field, name in zip(_FIELDS, names, strict=True):
        yield set_argument(tree, config, field, name, at_call)
    at_once = passed(tree, config, "steps_per_generation")  # in micro-batches
    if at_once is not None and tree.literal(at_once.value) is not None:
        scaled = f"{tree.text(at_once.value)} * {names[1]} // {batch.texts[1]}"
        yield set_argument(tree, config, "steps_per_generation", scaled)


def _doubts(batch: Batch) -> Findings:
    """Yield findings on other arguments whose effect depends on the number of processes."""
    tree, config, options = batch.tree, batch.config, batch.program.options
    processes, (total, group) = options.launch.processes, batch.step
    unit = math.lcm(group, processes * (options.batch if isinstance(options.batch, int) else 1))
    if total and total % unit:
        fitting = f"a number of processes that divides {total}" if total > 1 else "one process"
        message = (
            f"{processes} processes cannot share the notebook's {batch.amount(total)} a step equally: a step takes"
            f" {-(-total // unit) * unit}; choose {fitting} to keep the notebook's"
        )
        yield warning(config, message)
    if tree.family(config.func).endswith("KTOConfig"):
        yield warning(config, _KTO)
    parts = [part for given in batch.given[:2] if given for part in tree.backward_slice(given.value)]
    if any(_PROCESSES.search(tree.text(part)) for part in parts):
        yield todo(config, _DIVIDED)
    for doubt in _DOUBTS:
        given = passed(tree, config, doubt["field"])
        if given is not None and re.search(doubt["value"], tree.text(tree.value(given.value))):
            yield warning(config, doubt["why"])


_DROP = "dataloader_drop_last"
GATHER, CONFIG = "gather_across_devices", "accelerator_config"
_PACKAGE = r"sentence_transformers\.(\w+\.)*"
#: Losses that compare the samples of one device's batch and cannot gather.
_LOCAL = re.compile(
    rf"{_PACKAGE}(Batch(All|Hard|SemiHard|HardSoftMargin)TripletLoss|MegaBatchMarginLoss|(Sparse)?(CoSENT|AnglE)Loss"
    rf"|ContrastiveTensionLossInBatchNegatives)|{_PACKAGE}cross_encoder\.(\w+\.)*(Cached)?MultipleNegativesRankingLoss"
)
_GATHERS = "would find negatives in one GPU's part of the batch; the script gathers all"
_ONE_GPUS = (
    "compares only the samples of one GPU: more processes change the loss; to keep the notebook's, train on one GPU"
)
_WHOLE = (
    "more processes would compare different rows and drop incomplete batches; the script splits the notebook's own"
    " batches"
)


@rule("DDP204")
def negatives_not_shared(program: Program) -> Findings:
    """Losses with in-batch negatives gather them over all ranks, which share the notebook's batches."""
    tree = program.tree
    for call in program.execution.calls(GATHERING_LOSSES):
        if keyword(call, GATHER) is None:
            message = f"{tree.class_name(call.func)} {_GATHERS}"
            yield Finding(call, message, SetKeyword(call, GATHER, "world_size > 1"))
    for config in program.training.arguments:
        given = passed(tree, config, CONFIG)
        is_shared = given is not None and "split_batches" in tree.text(tree.value(given.value))
        if shares_batches(program.execution, config) and not is_shared:
            yield Finding(config, _WHOLE, *_share(program, config, given))
    for call in program.execution.calls(_LOCAL):
        yield warning(call, f"{tree.class_name(call.func)} {_ONE_GPUS}")


def _share(program: Program, config: cst.Call, settings: Passed | None) -> Iterator[Edit]:
    """Yield the edits that let all processes share the notebook's batch: each takes its part."""
    tree = program.tree
    default = str(_DEFAULTS["transformers"][PER_DEVICE])
    sizes = (passed(tree, config, field) for field in (PER_DEVICE, "per_device_eval_batch_size"))
    size, evaluated = (tree.text(given.value) if given else default for given in sizes)
    batch = f"share_batches({size})"
    if isinstance(tree.scope(config), (cst.Module, cst.FunctionDef)):
        name = program.name("shared_batch")
        comment = f"  # of all ranks together{f'; {size} samples in the notebook' if size.isdigit() else ''}"
        yield InsertBefore(tree.statement(config), f"{name} = {batch}{comment}")
        batch = name
    yield set_argument(tree, config, PER_DEVICE, batch, at_call=True)
    if any(keyword(call, "eval_dataset") is not None for call in program.training.trainers):
        multiple = f"-(-{evaluated} // world_size) * world_size"
        yield set_argument(tree, config, "per_device_eval_batch_size", multiple, at_call=True)
    others = f"**{tree.text(settings.value)}, " if settings else ""
    yield set_argument(tree, config, CONFIG, f'{{{others}"split_batches": world_size > 1}}', at_call=True)
    if constant(tree, config, _DROP) is not True:
        yield Wrap(config, "keep_last_batches(", ")")


_METHOD, _SIZE = "get_train_dataloader", "args.train_batch_size"
_SHARES = "each rank would train on all rows of this loader; in the script it trains on its share"
_ALL_ROWS = (
    "each rank trains on all rows of this loader: return self.accelerator.prepare(DataLoader(..., batch_size ="
    f" self.{_SIZE}))"
)
_PART = "this loader gives each rank only its share of the rows: use a DataLoader of the data set itself"
_MASKED = re.compile(r"\[[^\]:]*(==|!=|<|>|mask|~)[^\]:]*\]|\.(masked_select|nonzero)\(")
_UNEQUAL = (
    "a mask picks another number of values on each rank, which cannot be gathered: return a value for each token, with"
    " -100 where the mask is False"
)
_SHARED_OUT = re.compile(r"\.get_(train|eval|test)_dataloader\(")


@rule("DDP205")
def data_not_shared_out(program: Program) -> Findings:
    """A user-defined `get_train_dataloader` gives each rank its share; a loop over a share gets a `TODO`."""
    tree = program.tree
    own = [each for each in tree.live(cst.FunctionDef) if each.name.value == _METHOD]
    for made in (*own, *filter(tree.is_live, tree.setting(_METHOD))):
        sizes = [size for call in tree.within(made, cst.Call) if (size := keyword(call, "batch_size")) is not None]
        returned = [each.value for each in tree.within(made, cst.Return) if each.value is not None]
        if any(method(call) in ("prepare", _METHOD) for call in tree.within(made, cst.Call)):
            continue
        if returned and sizes and all(tree.text(size.value) == f"self.{_SIZE}" for size in sizes):
            yield Finding(made, _SHARES, *(Wrap(each, "self.accelerator.prepare(", ")") for each in returned))
        else:
            yield todo(made, _ALL_ROWS)
    for prepare in dict.fromkeys(map(tree.definition, tree.given("preprocess_logits_for_metrics"))):
        if prepare is not None and _MASKED.search(tree.text(prepare)):
            yield todo(prepare, _UNEQUAL)
    whole = [loop for loop in tree.live(cst.For) if not tree.within(loop.body, cst.Break)]
    loops: list[cst.For | cst.CompFor] = [*whole, *tree.live(cst.CompFor)]
    for loop in loops:
        for rows in values(tree, loop.iter):
            if isinstance(rows, cst.Call) and _SHARED_OUT.search(tree.text(rows)) and program.execution.runs(rows):
                yield todo(loop.iter if program.execution.runs(loop.iter) else rows, _PART)


#: Trainers that take rows of text only from a data set of the library `datasets`.
_TABLES = frozenset("SFTTrainer UnslothTrainer DPOTrainer ORPOTrainer CPOTrainer KTOTrainer GRPOTrainer".split())
#: Trainers that draw each row once an epoch, so that accelerate fills the last batches of the processes.
_EPOCHS = _TABLES - {"GRPOTrainer"} | {"Trainer"}
_REPEATED = (
    "{} processes repeat at least {} of these {} rows at the end of each epoch, to fill their last batches: write a"
    " multiple of {} rows, or train on one GPU"
)
_SHARED_ROWS = "the processes may have prepared different rows; the script compares them and takes the main process's"
_UNSEEN = "the processes may train on different rows: write trainer.train(), so that the script can compare them"


@rule("DDP414")
def rows_of_each_process(program: Program) -> Findings:
    """Before each training the processes compare their rows; where they differ, all take the main process's."""
    tree = program.tree
    written = set(map(tree.text, tree.of(cst.Call)))
    for call, trainer in () if program.options.split_model else trained(program):
        lines = [line.format(trainer) for line in _lines(program)]
        new = [line for line in lines if line.split("\n")[-1].strip() not in written]
        edits = tuple(InsertAbove(tree.statement(call), line) for line in new)
        if not trainer:
            yield todo(call, _UNSEEN)
        elif edits:
            yield Finding(call, _SHARED_ROWS, *edits)
    for call, name in zip(program.training.trainers, program.training.trainer_classes, strict=True):
        if name in _EPOCHS and (repeated := _repeated(program, call)):
            yield todo(call, repeated)


def _repeated(program: Program, trainer: cst.Call) -> str:
    """Return a message on rows that the processes repeat, if the notebook writes its rows out; "" if none is sure."""
    tree, processes = program.tree, program.options.launch.processes
    given, arguments = keyword(trainer, "train_dataset"), keyword(trainer, "args")
    config = None if arguments is None else tree.value(arguments.value)
    if given is None or not isinstance(config, cst.Call) or config not in program.training.arguments:
        return ""
    batch = Batch(program, config)
    rows, steps, (total, _) = rows_written(tree, given.value), constant(tree, config, "max_steps"), batch.step
    is_reached = steps in (None, -1) or (isinstance(steps, int) and steps * total >= rows)
    if not is_reached or not total or _is_set(tree, config, _DROP, "packing"):
        return ""
    share = -(-total // processes)
    repeated = -rows % (math.gcd(share, batch.numbers[0] or 1) * processes)  # more with a larger batch on a larger GPU
    return _REPEATED.format(processes, repeated, rows, share * processes) if rows and repeated else ""


def _is_set(tree: Tree, config: cst.Call, *fields: str) -> bool:
    return any(constant(tree, config, field) not in (None, False) for field in fields)


#: Names of classes and libraries of data sets without a length.
_STREAMS = re.compile("Iterable|iterable|Web[Dd]ataset|web[Dd]ataset|StreamingDataset")
#: Code that counts the rows that accelerate takes twice, so that all processes have the same number of batches.
_COUNTS = (
    "if world_size > 1:\n"
    '    print("Rows repeated in an epoch:", -len({0}.train_dataset) % ({0}.args.train_batch_size * world_size))'
)


def _lines(program: Program) -> Iterator[str]:
    """Yield the lines to insert above a training, with `{0}` for its trainer."""
    tree, training = program.tree, program.training
    yield "share_rows({0})"
    if any(tree.literal(each) is not False for each in tree.given("streaming")) or _STREAMS.search(tree.source):
        yield "share_streams({0})"
    if program.model_kind is not ModelKind.DENSE_TEXT or not _TABLES.issuperset(training.trainer_classes):
        yield "share_listed_rows({0})"
    repeats = not any(_is_set(tree, config, "max_steps", _DROP) for config in training.arguments)
    if training.trainers and _EPOCHS.issuperset(training.trainer_classes) and repeats:
        yield _COUNTS


FIELD = "average_tokens_across_devices"
COUNT = "num_items_in_batch"
#: Calls that make a model with new weights.
_FROM_CONFIG = re.compile(r"transformers(\.\w+)*\.(\w+\.(_?from_config)|[A-Z]\w*For\w+)")
#: Names in a loss that takes the division of its step into account.
_DIVIDES = re.compile(f"world_size|num_processes|{ACCUMULATION}")
#: Training arguments of trainers whose loss is a mean over tokens.
_TOKEN_CONFIGS = ("SFTConfig", "UnslothTrainingArguments", "Seq2SeqTrainingArguments")
_AVERAGES = {
    "True": "older transformers would weight each process equally, not each token; the script sets it",
    "False": (
        "transformers 5 would multiply the evaluation loss, already a mean, by the number of processes; the script"
        " sets it to False"
    ),
}
_CLASSIFIER = (
    "transformers 5 treats this classifier's loss as a sum: it multiplies evaluation losses by the number of"
    " processes, and gradients by the number of micro-batches in a step; set model.accepts_loss_kwargs = False after"
    " making the model"
)
_MULTIPLIES = (
    "transformers 5 multiplies the evaluation losses of an encoder-decoder model by the number of processes; training"
    " and metrics stay the same: divide these losses to compare them"
)
_SUMMED = (
    "this loss is a mean over a micro-batch, and Trainer adds up those of a step, which are fewer here; the script"
    " multiplies the loss by the notebook's number of micro-batches over its own"
)
_SMALLER = (
    "{} processes cannot share the {} micro-batches of the notebook's step equally, and means over smaller ones weight"
    " rows of unequal length differently; choose a number of processes that divides this number"
)
_OWN = (
    "Trainer adds up this loss over a step's micro-batches, and DDP averages it over the processes: multiply a loss"
    f" divided by {COUNT} by world_size, and a mean over a micro-batch by the notebook's {ACCUMULATION} /"
    f" self.args.{ACCUMULATION}"
)
_UNUSED = (
    "Trainer adds up this loss over a step's micro-batches, whose number depends on the number of processes: return a"
    f" sum over tokens divided by {COUNT}"
)


@rule("DDP203")
def tokens_not_averaged(program: Program) -> Findings:
    """The loss of a step is averaged over the tokens, or samples, of all ranks."""
    tree, training = program.tree, program.training
    models = [*program.loads, *program.execution.calls(_FROM_CONFIG)] if "Trainer" in training.trainer_classes else []
    heads = [made for made in models if has_new_head(tree, made)]
    if tree.given("compute_loss_func") or tree.attributes("accepts_loss_kwargs"):
        heads = []  # the notebook itself defines how a trainer reads its loss
    by_unsloth = bool(heads) and tree.qualified(heads[0].func).startswith("unsloth.")
    is_averaged = False
    for config in training.arguments:
        given = passed(tree, config, FIELD)
        is_false = constant(tree, config, FIELD) is False
        value = _average(program, config, bool(heads), by_unsloth)
        if value and (given is None or (value == "True" and is_false)):
            message = f"{FIELD} is {'not set' if given is None else 'False'}: {_AVERAGES[value]}"
            yield Finding(config, message, set_argument(tree, config, FIELD, value))
        is_averaged |= tree.class_name(config.func) == "TrainingArguments" and not is_false
    if is_averaged and not by_unsloth:
        yield from (todo(load, _CLASSIFIER) for load in heads[:1])
    for call, name in zip(training.trainers, training.trainer_classes, strict=True):
        translates = name == "Seq2SeqTrainer" or (name == "Trainer" and program.model_kind is ModelKind.ENCODER_DECODER)
        if translates and keyword(call, "eval_dataset") is not None:
            yield warning(call, _MULTIPLIES)
    yield from _own_losses(program)


def _average(program: Program, config: cst.Call, is_classifier: bool, by_unsloth: bool) -> str:
    """Return the value to pass to a config, as code; "" if no value is known to be right.

    Unsloth does not count items when it trains a classifier, so the loss stays a mean; transformers counts them.
    """
    training, name = program.training, program.tree.class_name(config.func)
    if name != "TrainingArguments":
        return "True" if name.endswith(_TOKEN_CONFIGS) else ""
    if is_classifier:
        return "False" if by_unsloth else ""
    is_decoder = "Trainer" in training.trainer_classes and program.model_kind is not ModelKind.ENCODER
    return "True" if is_decoder or any(name.endswith(TOKEN_TRAINERS) for name in training.trainer_classes) else ""


def _own_losses(program: Program) -> Findings:
    """Yield findings on user-defined losses: methods of trainers, and functions that are passed to a trainer."""
    tree = program.tree
    steps = {Batch(program, config).numbers[1] for config in program.training.arguments}
    notebook = steps.pop() if len(steps) == 1 else None
    for function in tree.live(cst.FunctionDef):
        count, uses = _count(tree, function)
        is_own = count and _is_of_trainer(tree, function) and not _DIVIDES.search(tree.text(function))
        if not is_own or _hands_on(tree, function, uses):
            continue
        factor = f" * (1 if {count} is None else {notebook} / self.args.{ACCUMULATION})"
        losses = _plain_losses(tree, function) if notebook and not uses else []
        edits = tuple(_multiply(loss, factor) for loss in losses)
        yield Finding(function, _SUMMED if edits else _OWN, *edits, todo=not edits)
        processes = program.options.launch.processes
        if edits and notebook and notebook % processes:
            yield todo(function, _SMALLER.format(processes, notebook))
    for given in dict.fromkeys(map(tree.definition, tree.given("compute_loss_func"))):
        if isinstance(given, cst.FunctionDef) and not _count(tree, given)[1]:
            yield todo(given, _UNUSED)


def _is_of_trainer(tree: Tree, function: cst.FunctionDef) -> bool:
    """Return whether a function is the `compute_loss` of a trainer that counts items (TRL's other trainers do not)."""
    owner = tree.scope(function)
    bases = [tree.class_name(base.value) for base in owner.bases] if isinstance(owner, cst.ClassDef) else []
    counts = any(base == "Trainer" or base.endswith(TOKEN_TRAINERS) for base in bases)
    return function.name.value == "compute_loss" and counts


def _count(tree: Tree, function: cst.FunctionDef) -> tuple[str, list[cst.Name]]:
    """Return the code with which a loss reads the number of items ("" if it cannot), and the places where it does."""
    options = function.params.star_kwarg
    is_named = any(param.name.value == COUNT for param in tree.within(function.params, cst.Param))
    name = COUNT if is_named or options is None else options.name.value
    uses = [use for use in tree.loads(name) if tree.function(use) is function]
    return COUNT if is_named else f'{name}.get("{COUNT}")' if options is not None else "", uses


def _hands_on(tree: Tree, function: cst.FunctionDef, uses: list[cst.Name]) -> bool:
    """Return whether the number of items only goes to the library's `compute_loss`, whose loss is not changed."""
    changed = [*tree.within(function, cst.BinaryOperation), *tree.within(function, cst.AugAssign)]
    calls = [tree.around(use, cst.Call) for use in uses]
    return bool(calls) and not changed and all(call is not None and method(call) == "compute_loss" for call in calls)


def _plain_losses(tree: Tree, function: cst.FunctionDef) -> list[cst.BaseExpression]:
    """Return the losses of a `compute_loss` in training, if `return_outputs` only chooses the result; else none."""
    tests = [tree.parents[use] for use in tree.loads("return_outputs") if tree.function(use) is function]
    returned = [each.value for each in tree.within(function, cst.Return) if tree.enclosing_function(each) is function]
    losses = [each.orelse if isinstance(each, cst.IfExp) and each in tests else each for each in returned if each]
    is_plain = all(isinstance(test, (cst.If, cst.IfExp)) for test in tests)
    return [loss for loss in losses if is_plain and not isinstance(loss, cst.Tuple)]


def _multiply(loss: cst.BaseExpression, factor: str) -> Wrap:
    is_whole = isinstance(loss, (cst.Name, cst.Call, cst.Attribute, cst.Subscript)) or bool(loss.lpar)
    return Wrap(loss, "", factor) if is_whole else Wrap(loss, "(", f"){factor}")
