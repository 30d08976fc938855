"""The batch, its rows and the loss over it: what of a step each process takes."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence

import libcst as cst
from packaging.version import Version

from nb2ddp.facts.loading import ModelKind, has_new_head
from nb2ddp.facts.micro_batch import GATHERING_LOSSES, shares_batches, why_shape_counts
from nb2ddp.facts.numbers import number, rows_written
from nb2ddp.facts.program import Program
from nb2ddp.facts.releases import newest
from nb2ddp.facts.training import TOKEN_TRAINERS
from nb2ddp.results import Severity
from nb2ddp.rules.rule import Finding, rule
from nb2ddp.syntax.arguments import Passed, constant, is_closed, passed, set_argument
from nb2ddp.syntax.edits import Edit, InsertAbove, InsertBefore, Replace, SetKeyword, Wrap
from nb2ddp.syntax.tree import Tree, argument, keyword, method

PER_DEVICE, ACCUMULATION = "per_device_train_batch_size", "gradient_accumulation_steps"
_FIELDS = (PER_DEVICE, ACCUMULATION)
#: How calls begin that split a batch, and the memory of a GPU that they take for the notebook's, in gigabytes.
_SPLITS = ("split_batch(", "split_completions(")
_DEFAULT_MEMORY = 15
#: What a config that names neither field trains with: transformers' defaults (training_args.py) ...
_DEFAULTS = ("8", "1")
#: ... and those of TRL's configs once Unsloth has patched them (unsloth/models/rl.py, 2026.10.9).
_UNSLOTH_DEFAULTS = ("4", "2")
#: Configs whose step is counted in completions, several of one prompt (trl/trainer/grpo_config.py).
_COMPLETION_CONFIGS = ("GRPOConfig", "RLOOConfig")
_DEFAULT_GENERATIONS = "8"
_PROCESSES = re.compile(r"device_count\(|get_world_size\(|\bnum_processes\b|WORLD_SIZE|\bn_gpu\b")
_KTO = (
    "KTO compares the rows of one GPU with each other, which fails with one row: start so few processes that "
    "each has at least 2 rows a step"
)
_DIVIDED = (
    "the notebook computes its batch from the number of GPUs, and the script splits it once more, so the global "
    "batch changes: write the batch of one GPU as a number"
)
_SHARED_BATCH = (
    "split_batches splits each batch over the ranks once more, so the global batch is smaller than the "
    "notebook's: leave it out"
)
_GROUPED = (
    "rows of similar length are grouped within one rank's rows of a step: with more ranks their order changes, "
    "and losses differ slightly; to compare runs, leave the grouping out"
)
_TOKEN_MEAN = (
    "bnpo is a mean over the tokens of a micro-batch: where more ranks leave it fewer completions, tokens weigh"
    ' otherwise than on one GPU; loss_type = "dapo" does not depend on it'
)
_AUTOMATIC = (
    "with auto_find_batch_size ranks may choose different batches, and wait for each other forever; the script "
    "sets it to False: choose a batch that fits, or --batch"
)
_NOT_SEEN = (
    "nothing shows the batch of this training, so it is not split: each process trains on a whole batch; pass"
    f" {PER_DEVICE} and {ACCUMULATION} to training arguments in the notebook"
)
_TOO_LATE = (
    "is set where the script no longer splits the batch, so each process takes all of it: pass it where the arguments"
    " are built"
)
_OF_ONE = "this product counts the samples of one process: multiply it by world_size"
_GROWS = "each process would train on a whole batch, so that more GPUs change the training; the script splits it"
_NO_GPU, _TOO_SMALL = "whose GPU is not known", "whose GPU ran out of memory"
_SETS = "(--batch sets it)"
_NOT_SPLIT = "so it is not split: each process trains on a whole batch"
_REMEDY = f"write {PER_DEVICE} and {ACCUMULATION} into the call"


@rule("DDP201")
def batch_not_split(program: Program) -> Iterator[Finding]:
    """The notebook's global batch (per-device batch x accumulation) is split over the ranks."""
    if program.options.split_model and not isinstance(program.options.batch, int):
        return  # one process takes all of it
    for call in program.training.arguments:
        yield from _split(program, call)
    yield from _unseen(program)


def _split(program: Program, call: cst.Call) -> Iterator[Finding]:
    given = _given(program.tree, call)
    if shares_batches(program.execution, call) or (given[0] is not None and _is_split(program, given[0].value)):
        return  # the first of them is for DDP204
    if unknown := _unknown(program, call, given):
        yield Finding(call, unknown, todo=True)
        return
    why = _kept(program, call)
    said = f"{_GROWS}{f', with at most the per-device batch of the notebook, {why} {_SETS}' if why else ''}"
    yield Finding(call, said, tuple(_edits(program, call, given)))
    if larger := _larger_step(program, call, given):
        yield Finding(call, larger, severity=Severity.WARNING)
    yield from _doubts(program, call, given)


def _larger_step(program: Program, config: cst.Call, given: list[Passed | None]) -> str:
    """What a step becomes that the job's processes cannot share equally; "" where they can, or nothing tells."""
    processes = program.options.launch.processes
    batch, group = _step(program, config, given)
    if not batch:
        return ""
    size = program.options.batch
    unit = math.lcm(group, processes * (size if isinstance(size, int) else 1))
    total = -(-batch // unit) * unit
    if total == batch:
        return ""
    amount = _amount(program.tree, config, batch)
    fitting = f"a number of processes that divides {batch}" if batch > 1 else "one process"
    return (
        f"{processes} processes cannot share the notebook's {amount} a step equally: a step takes {total}; choose"
        f" {fitting} to keep the notebook's"
    )


def _edits(program: Program, call: cst.Call, given: list[Passed | None]) -> Iterator[Edit]:
    """Split the batch where it is written: on a line of its own above, or in place."""
    tree = program.tree
    values = [tree.text(field.value) if field else default for field, default in _fields(program, call, given)]
    split = _call(program, call, values, _generations(tree, call))
    holder = next((g.holder for g in given if g is not None), call)
    at_call = not _is_said_in_one_place(program, call, holder, values)
    if _stands_alone(program, call):
        names = [program.name("per_device_batch"), program.name("accumulation")]
        holder = call if at_call else holder
        comment = _comment(program, call, given)
        yield InsertAbove(tree.statement(holder), f"{', '.join(names)} = {split}  # {comment}")
    else:
        names = [f"{split}[0]", f"{split}[1]"]
    for field, name in zip(_FIELDS, names, strict=True):
        yield set_argument(tree, call, field, name, at_call)
    at_once = passed(tree, call, "steps_per_generation")  # in micro-batches
    if at_once is not None and tree.literal(at_once.value) is not None:
        scaled = f"{tree.text(at_once.value)} * {names[1]} // {values[1]}"
        yield set_argument(tree, call, "steps_per_generation", scaled)


def _doubts(program: Program, call: cst.Call, given: list[Passed | None]) -> Iterator[Finding]:
    """What else in the arguments changes with the number of processes."""
    tree = program.tree
    if tree.family(call.func).endswith("KTOConfig"):
        yield Finding(call, _KTO, severity=Severity.WARNING)
    if any(_counts_processes(tree, g.value) for g in given if g is not None):
        yield Finding(call, _DIVIDED, todo=True)
    divided = passed(tree, call, "split_batches") or passed(tree, call, "accelerator_config")
    if divided is not None and re.search(r"split_batches.*True|^True$", tree.text(tree.value(divided.value)), re.S):
        yield Finding(call, _SHARED_BATCH, todo=True)
    grouped = [constant(tree, call, name) for name in ("group_by_length", "train_sampling_strategy")]
    if any(value in (True, "group_by_length") for value in grouped):  # in transformers 5 it is a strategy
        yield Finding(call, _GROUPED, fixed=False)
    if constant(tree, call, "loss_type") == "bnpo" and not _takes_one_by_one(program, call, given):
        yield Finding(call, _TOKEN_MEAN, fixed=False)
    if _is_set(tree, call, "auto_find_batch_size"):
        edit = set_argument(tree, call, "auto_find_batch_size", "False")
        yield Finding(call, _AUTOMATIC, (edit,), severity=Severity.WARNING)


def _call(program: Program, config: cst.Call, values: list[str], generations: str) -> str:
    """The call of the runtime that splits a config's batch: per-device batch and accumulation, as code."""
    size = program.options.batch
    arguments = ", ".join([*values, *filter(None, [generations])])
    name = "split_completions" if generations else "split_batch"
    if isinstance(size, int):
        return f"{name}({arguments}, largest={size})"
    if generations:
        return f"{name}({arguments})"
    if size == "notebook" or program.gpu is None or _kept(program, config):
        return f"{name}({arguments}, largest={values[0]})"
    memory = program.gpu.gigabytes
    return f"{name}({arguments}{f', gpu_memory={memory}e9' if memory != _DEFAULT_MEMORY else ''})"


def _kept(program: Program, config: cst.Call) -> str:
    """Why the per-device batch does not grow with the GPU's memory, if no option sets it; "" where it grows."""
    if program.options.batch is not None or _generations(program.tree, config):
        return ""
    if program.gpu is None:
        return _TOO_SMALL if program.ran_out_of_memory else _NO_GPU
    per_device, _ = _given(program.tree, config)
    if per_device is not None and program.tree.fixed(per_device.value) is ...:
        if program.tree.literal(per_device.value) is not ...:
            return "which sets it more than once"
        is_held = number(program.tree, per_device.value) is not None
        return "which holds it in a class or a dictionary" if is_held else "which computes it"
    resumes = "whose checkpoint sets it again" if _keeps_batch_of_checkpoint(program) else ""
    return why_shape_counts(program.training, program.model_kind, program.loads, config) or resumes


def _keeps_batch_of_checkpoint(program: Program) -> bool:
    """Whether the first training goes on from a checkpoint of another run, with a transformers that takes its batch.

    `train` of transformers 4 sets `_train_batch_size` to the checkpoint's, and no accumulation (trainer.py, 4.56.2).
    """
    first = next((call for call in program.training.calls if method(call) == "train"), None)
    given = None if first is None else argument(first, "resume_from_checkpoint", 0)
    named = None if given is None else program.tree.literal(given.value)
    release = newest(program.tree, program.text, "transformers")
    return (named is True or isinstance(named, str)) and bool(release) and Version(release) < Version("5")


def split_of(program: Program, config: cst.Call) -> str | None:
    """The call that splits a config's batch, as code with numbers alone; None where nothing tells one of them.

    Empty where the batch is a pool of negatives, which stays whole.
    """
    if shares_batches(program.execution, config):
        return ""
    given = _given(program.tree, config)
    fields = [*_fields(program, config, given), (passed(program.tree, config, "num_generations"), _DEFAULT_GENERATIONS)]
    *values, generations = (_batch_size(program.tree, field, default) for field, default in fields)
    counted = generations if _generations(program.tree, config) else ""
    if _unknown(program, config, given) or "0" in (*values, counted):
        return None
    return _call(program, config, values, counted)


def batch_of(program: Program, config: cst.Call) -> list[object]:
    """The per-device batch and the accumulation of a config in the notebook, each `...` where nothing tells it."""
    given = _given(program.tree, config)
    if _unknown(program, config, given):
        return [..., ...]
    fields = _fields(program, config, given)
    return [int(default) if field is None else program.tree.fixed(field.value) for field, default in fields]


def _batch_size(tree: Tree, given: Passed | None, default: str) -> str:
    """A positive number that a config is given, as code, else the default; 0 where nothing tells it."""
    found = number(tree, given.value) if given is not None and tree.literal(given.value) is not None else int(default)
    return "0" if found is None else str(int(found)) if found > 0 else default


def _unknown(program: Program, call: cst.Call, given: list[Passed | None]) -> str:
    """Why the batch of a config cannot be told from the notebook, and what to do; "" where it can."""
    remedy = _REMEDY
    if None in given and not is_closed(program.tree, call):
        why, remedy = "the batch may come from **keywords", f"{_REMEDY}, and take them out of the keywords"
    elif program.training.is_chosen_config(call) and any(
        name.endswith(_COMPLETION_CONFIGS) for name in program.tree.names_read
    ):
        why, remedy = "the batch may count completions or samples", "call the class by its name"
    elif None in given and _defaults(program, call) is None:
        why = "the batch is set in the class"
    else:
        return ""
    return f"{why}, {_NOT_SPLIT}; {remedy}"


def _is_said_in_one_place(program: Program, call: cst.Call, holder: cst.CSTNode, values: list[str]) -> bool:
    """True where this config, and each that takes a field of its batch from one place, takes all of it there.

    They must also say the same values.
    """
    tree = program.tree
    for other in program.training.arguments:
        given = [(g, value) for g, value in zip(_given(tree, other), values, strict=True) if g is not None]
        takes = other is call or any(g.holder is holder for g, _ in given)
        if takes and not all(g.holder is holder and tree.text(g.value) == value for g, value in given):
            return False
    return True


def _defaults(program: Program, call: cst.Call) -> tuple[str, str] | None:
    """What a config trains with where it is not told, as code; None where nothing shows it."""
    if program.training.is_chosen_config(call):
        return None
    classes = filter(None, map(program.tree.definition, program.tree.bases(call.func)))
    if any(field in program.tree.text(own) for own in classes if isinstance(own, cst.ClassDef) for field in _FIELDS):
        return None
    return _UNSLOTH_DEFAULTS if program.tree.family(call.func).startswith("trl.") else _DEFAULTS


def _fields(program: Program, call: cst.Call, given: list[Passed | None]) -> list[tuple[Passed | None, str]]:
    """The batch and the accumulation that a config is given, each with what it takes else."""
    return [*zip(given, _defaults(program, call) or _DEFAULTS, strict=True)]


def _counts_processes(tree: Tree, node: cst.BaseExpression) -> bool:
    """True for a value that depends on how many GPUs or processes there are."""
    return any(_PROCESSES.search(tree.text(part)) for part in tree.made_of(node))


def _given(tree: Tree, call: cst.Call) -> list[Passed | None]:
    """What a config is told of its batch and its accumulation; None for what it is not told."""
    given = [passed(tree, call, field) for field in _FIELDS]
    return [None if value is None or tree.literal(value.value) is None else value for value in given]


def _stands_alone(program: Program, call: cst.Call) -> bool:
    """True where names bound on the line above reach this config and no other of its statement."""
    tree = program.tree
    statement = tree.statement(call)
    siblings = [other for other in program.training.arguments if tree.statement(other) is statement]
    inner = (cst.Lambda, cst.ListComp, cst.DictComp, cst.SetComp, cst.GeneratorExp, cst.Param)
    above = tree.ancestors(call)
    nested = any(isinstance(node, inner) for node in above if tree.start(node) >= tree.start(statement))
    return len(siblings) == 1 and not nested


def _unseen(program: Program) -> Iterator[Finding]:
    """Batches that no rule splits: of a training without arguments, or set after they are built."""
    tree, training = program.tree, program.training
    unseen = [call for call in training.trainers if not any(each.star for each in call.args)]
    if training.arguments:
        unseen = [call for call in unseen if argument(call, "args", 1) is None]
    elif not training.trainers:
        unseen = [call for call in training.calls if method(call) == "train"]
    yield from (Finding(call, _NOT_SEEN, todo=True) for call in unseen)
    for attribute in (each for field in _FIELDS for each in tree.attributes(field)):
        is_set = isinstance(tree.parents[attribute], (cst.AssignTarget, cst.AugAssign)) and tree.is_live(attribute)
        if is_set and _holds_arguments(program, attribute.value):
            yield Finding(attribute, f"{attribute.attr.value} {_TOO_LATE}", todo=True)
    for product in tree.live(cst.BinaryOperation):
        factors = {each.attr.value for each in (product.left, product.right) if isinstance(each, cst.Attribute)}
        if factors == {*_FIELDS} and not _PROCESSES.search(tree.text(tree.statement(product))):
            yield Finding(product, _OF_ONE, severity=Severity.WARNING)


def _holds_arguments(program: Program, node: cst.BaseExpression) -> bool:
    """True for training arguments that are built already."""
    return program.tree.value(node) in program.training.arguments or program.tree.text(node).endswith("trainer.args")


def _generations(tree: Tree, call: cst.Call) -> str:
    """The completions of one prompt, where the step is counted in completions; else empty."""
    given = passed(tree, call, "num_generations")
    generations = tree.text(given.value) if given is not None else _DEFAULT_GENERATIONS
    return generations if tree.family(call.func).endswith(_COMPLETION_CONFIGS) else ""


def _unit(tree: Tree, call: cst.Call) -> str:
    return "completion" if _generations(tree, call) else "sample"


def _step(program: Program, call: cst.Call, given: list[Passed | None]) -> tuple[int, int]:
    """The samples or completions of the notebook's step, and of one prompt; 0 where they are not known."""
    tree = program.tree
    fields = _fields(program, call, given)
    if _generations(tree, call):
        fields.append((passed(tree, call, "num_generations"), _DEFAULT_GENERATIONS))
    values = [tree.fixed(field.value) if field else int(default) for field, default in fields]
    numbers = [value for value in values if isinstance(value, int)]
    if len(numbers) < len(values):
        return 0, 0
    per_device, accumulation, group = [*numbers, 1][:3]
    return (per_device if per_device * accumulation % group == 0 else group) * accumulation, group  # as Unsloth does


def _takes_one_by_one(program: Program, call: cst.Call, given: list[Passed | None]) -> bool:
    """True where the notebook's GPU takes one completion at a time, as every other then does."""
    accumulation = given[1]
    steps = program.tree.fixed(accumulation.value) if accumulation is not None else ...
    return _step(program, call, given)[0] == steps


def _amount(tree: Tree, call: cst.Call, number: int) -> str:
    """A number of samples or completions, in words."""
    return f"{number} {_unit(tree, call)}{'' if number == 1 else 's'}"


def _comment(program: Program, call: cst.Call, given: list[Passed | None]) -> str:
    """The notebook's own number, which is true on any number of processes."""
    total, _ = _step(program, call, given)
    if not total:
        return f"the notebook's {_unit(program.tree, call)}s a step"
    why = _kept(program, call)
    unknown = f", {why}" if why in (_NO_GPU, _TOO_SMALL) else ""
    return f"{_amount(program.tree, call, total)} a step in the notebook{unknown}"


def _is_split(program: Program, value: cst.BaseExpression) -> bool:
    """True for a name that a split of the batch has bound, or such a call."""
    bound = program.tree.definition(value)
    made = bound.value if isinstance(bound, cst.Assign) else value
    return program.tree.text(made).startswith(_SPLITS)


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
    size = _rows_size(program, config, _BATCH)
    edits = list[Edit]()
    batch = f"share_batches({size})"
    if isinstance(tree.scope(config), (cst.Module, cst.FunctionDef)):
        name = program.name("shared_batch")
        comment = f"  # of all ranks together{f'; {size} samples in the notebook' if size.isdigit() else ''}"
        edits.append(InsertBefore(tree.statement(config), f"{name} = {batch}{comment}"))
        batch = name
    edits.append(set_argument(tree, config, _BATCH, batch, at_call=True))
    if any(keyword(call, "eval_dataset") is not None for call in program.training.trainers):
        evaluated = f"-(-{_rows_size(program, config, _EVAL_BATCH)} // world_size) * world_size"  # a multiple of them
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


def _rows_size(program: Program, config: cst.Call, field: str) -> str:
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
#: Trainers that draw each row once an epoch, so that accelerate fills the last batches of the processes.
_EPOCHS = _TABLES - {"GRPOTrainer"} | {"Trainer"}
_SHARED_ROWS = "each process may have prepared other rows; the script compares them, and takes the main process's"
_REPEATED = (
    "{} processes repeat at least {} of these {} rows at the end of each epoch, to fill their last batches: write a"
    " multiple of {} rows, or train on one GPU"
)
_UNSEEN = "each process may train on other rows: write it as trainer.train(), so that the script can compare them"


@rule("DDP414")
def rows_of_each_process(program: Program) -> Iterator[Finding]:
    """Before each training the processes compare their rows; where they differ, all take the main process's."""
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
        lines = [line.format(tree.text(owner)) for line in _lines(program)]
        new = [line for line in lines if line.split("\n")[-1].strip() not in written]
        if edits := tuple(InsertAbove(tree.statement(call), line) for line in new):
            yield Finding(call, _SHARED_ROWS, edits)
    for trainer, name in zip(program.training.trainers, program.training.trainer_classes, strict=True):
        if name in _EPOCHS and (repeated := _repeated(program, trainer)):
            yield Finding(trainer, repeated, todo=True)


def _repeated(program: Program, trainer: cst.Call) -> str:
    """How many rows the processes repeat, in words, where the notebook writes its rows out; "" where none is sure."""
    tree, processes = program.tree, program.options.launch.processes
    given, arguments = keyword(trainer, "train_dataset"), keyword(trainer, "args")
    config = None if arguments is None else tree.value(arguments.value)
    if given is None or not isinstance(config, cst.Call) or config not in program.training.arguments:
        return ""
    rows, batch = rows_written(tree, given.value), _step(program, config, _given(tree, config))[0]
    steps, per_device = constant(tree, config, "max_steps"), batch_of(program, config)[0]
    is_reached = steps in (None, -1) or (isinstance(steps, int) and steps * batch >= rows)
    if not (is_reached and batch and isinstance(per_device, int)) or _is_set(tree, config, _DROP, "packing"):
        return ""
    share = -(-batch // processes)
    repeated = -rows % (math.gcd(share, per_device) * processes)  # more with a larger batch on a larger GPU
    return _REPEATED.format(processes, repeated, rows, share * processes) if rows and repeated else ""


def _is_set(tree: Tree, config: cst.Call, *fields: str) -> bool:
    return any(constant(tree, config, field) not in (None, False) for field in fields)


#: Counts the rows that accelerate takes twice, so that each process has as many batches.
_COUNTS = (
    "if world_size > 1:\n"
    '    print("Rows repeated in an epoch:", -len({0}.train_dataset) % ({0}.args.train_batch_size * world_size))'
)


def _lines(program: Program) -> Iterator[str]:
    """Yield the lines above a training, with its trainer as `{0}`."""
    tree, training = program.tree, program.training
    yield "share_rows({0})"
    if any(tree.literal(each) is not False for each in tree.given("streaming")) or "terable" in tree.source:
        yield "share_streams({0})"
    if program.model_kind is not ModelKind.DENSE_TEXT or not _TABLES.issuperset(training.trainer_classes):
        yield "share_listed_rows({0})"
    repeats = not any(_is_set(tree, config, "max_steps", _DROP) for config in training.arguments)
    if training.trainers and _EPOCHS.issuperset(training.trainer_classes) and repeats:
        yield _COUNTS


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
    """The loss of a step is averaged over the tokens, or samples, of all ranks."""
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
            yield Finding(function, _SMALLER.format(processes, batches, fitting), todo=True)
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
