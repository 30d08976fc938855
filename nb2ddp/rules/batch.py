"""DDP201: The notebook's global batch (per-device batch x accumulation) is split over the ranks."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator

import libcst as cst
from packaging.version import Version

from nb2ddp.facts.micro_batch import shares_batches, why_shape_counts
from nb2ddp.facts.numbers import number
from nb2ddp.facts.program import Program
from nb2ddp.facts.releases import newest
from nb2ddp.results import Severity
from nb2ddp.rules.rule import Finding, rule
from nb2ddp.syntax.arguments import Passed, constant, is_closed, passed, set_argument
from nb2ddp.syntax.edits import Edit, InsertAbove
from nb2ddp.syntax.tree import Tree, argument, method

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
_SHARED = (
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
        yield Finding(call, _SHARED, todo=True)
    grouped = [constant(tree, call, name) for name in ("group_by_length", "train_sampling_strategy")]
    if any(value in (True, "group_by_length") for value in grouped):  # in transformers 5 it is a strategy
        yield Finding(call, _GROUPED, fixed=False)
    if constant(tree, call, "loss_type") == "bnpo" and not _takes_one_by_one(program, call, given):
        yield Finding(call, _TOKEN_MEAN, fixed=False)
    if constant(tree, call, "auto_find_batch_size") not in (None, False):
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
    *values, generations = (_size(program.tree, field, default) for field, default in fields)
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


def _size(tree: Tree, given: Passed | None, default: str) -> str:
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
