"""DDP203: The loss of a step is averaged over the tokens, or samples, of all ranks.

Each rank sees another number of tokens in a step. With `average_tokens_across_devices = True`, the loss is one mean
over all tokens of the step, as on one GPU; transformers before 5 defaults to False. An explicit False had no effect on
one GPU, and becomes True.

A classifier's loss is a mean over samples. With the field, transformers 5.17 multiplies it by the number of processes
in every evaluation (1.49 on one GPU, 2.98 on two), so a classifier that Unsloth loads gets False; one that transformers
loads gets a `TODO`.

A `compute_loss` of the notebook's own that leaves `num_items_in_batch` unused is a mean of a micro-batch. Trainer adds
up the means of a step (`training_step`, transformers 4.56.2 and 5.17), and DDP averages the sums of the processes: the
loss grows with the number of micro-batches. The script multiplies it by the notebook's accumulation over its own. With
fewer rows in a micro-batch than in the notebook's, rows of unequal length weigh otherwise (6.73 for 6.78). A loss
whose returns are less plain, one that divides by `num_items_in_batch` itself, and a `compute_loss_func` that
leaves it unused get a `TODO`.

Whisper, T5 and BART take the mean themselves, and the field multiplies their evaluations. With a small Whisper on CPU
(1 x 4 in one process, 1 x 2 in each of two), training agrees with the field (loss 18.2992, gradient norm 7.3683) while
the evaluation doubles (9.2311 against 4.6155); without it, training sees half the loss. They keep the field, with a
warning.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import libcst as cst

from nb2ddp.facts.loading import ModelKind, has_new_head
from nb2ddp.facts.program import Program
from nb2ddp.facts.training import TOKEN_TRAINERS
from nb2ddp.results import Severity
from nb2ddp.rules.batch import ACCUMULATION, batch_of
from nb2ddp.rules.rule import Example, Finding, Rule
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


def find(program: Program) -> Iterator[Finding]:
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


_CONFIG = """\
from trl import SFTConfig
args = SFTConfig(gradient_accumulation_steps = 4, average_tokens_across_devices = True)
"""
_UNCERTAIN = (
    """\
class Summed(SFTTrainer):
    def compute_loss(self, model, inputs, return_outputs = False, num_items_in_batch = None):
        return summed(model, inputs) / num_items_in_batch
""",
    """\
class Passed(SFTTrainer):
    def compute_loss(self, model, inputs, return_outputs = False, num_items_in_batch = None):
        return super().compute_loss(model, inputs, return_outputs)
""",
    """\
class Added(SFTTrainer):
    def compute_loss(self, model, inputs, return_outputs = False, **kwargs):
        loss, outputs = super().compute_loss(model, inputs, return_outputs = True, **kwargs)
        return (loss + penalty(model), outputs) if return_outputs else loss + penalty(model)
""",
)

RULE = Rule(
    name="tokens-not-averaged",
    find=find,
    examples=(
        Example(
            _CONFIG
            + """\
class Masked(SFTTrainer):
    def compute_loss(self, model, inputs, return_outputs = False, num_items_in_batch = None):
        outputs = model(**inputs)
        loss = cross_entropy(outputs.logits, inputs["labels"])
        return (loss, outputs) if return_outputs else loss
""",
            _CONFIG
            + """\
class Masked(SFTTrainer):
    def compute_loss(self, model, inputs, return_outputs = False, num_items_in_batch = None):
        outputs = model(**inputs)
        loss = cross_entropy(outputs.logits, inputs["labels"])
        return (loss, outputs) if return_outputs else loss * \
(1 if num_items_in_batch is None else 4 / self.args.gradient_accumulation_steps)
""",
        ),
        Example(
            _CONFIG
            + """\
class Penalized(SFTTrainer):
    def compute_loss(self, model, inputs, return_outputs = False, **kwargs):
        loss, outputs = super().compute_loss(model, inputs, return_outputs = True)
        if return_outputs:
            return loss + penalty(model), outputs
        else:
            return loss + penalty(model)
""",
            _CONFIG
            + """\
class Penalized(SFTTrainer):
    def compute_loss(self, model, inputs, return_outputs = False, **kwargs):
        loss, outputs = super().compute_loss(model, inputs, return_outputs = True)
        if return_outputs:
            return loss + penalty(model), outputs
        else:
            return (loss + penalty(model)) * (1 if kwargs.get("num_items_in_batch") is None else \
4 / self.args.gradient_accumulation_steps)
""",
        ),
        *(Example(code, code.replace("    def", f"    # TODO[nb2ddp] DDP203: {_OWN}\n    def")) for code in _UNCERTAIN),
        Example(
            """\
from trl import SFTTrainer
def loss_of(outputs, labels, **kwargs):
    return cross_entropy(outputs.logits, labels)
trainer = SFTTrainer(model = model, compute_loss_func = loss_of)
""",
            f"""\
from trl import SFTTrainer
# TODO[nb2ddp] DDP203: {_UNUSED}
def loss_of(outputs, labels, **kwargs):
    return cross_entropy(outputs.logits, labels)
trainer = SFTTrainer(model = model, compute_loss_func = loss_of)
""",
        ),
        Example(
            """\
class Logged(SFTTrainer):
    def compute_loss(self, model, inputs, return_outputs = False, num_items_in_batch = None):
        return super().compute_loss(model, inputs, return_outputs, num_items_in_batch = num_items_in_batch)
"""
        ),
        Example(
            "from trl import SFTConfig\nargs = SFTConfig(max_steps = 60)\n",
            "from trl import SFTConfig\nargs = SFTConfig(max_steps = 60, average_tokens_across_devices = True)\n",
        ),
        Example(
            "from trl import SFTConfig\nargs = SFTConfig(average_tokens_across_devices = False)\n",
            "from trl import SFTConfig\nargs = SFTConfig(average_tokens_across_devices = True)\n",
        ),
        Example("from trl import DPOConfig\nargs = DPOConfig(max_steps = 60)\n"),
        Example(
            """\
from transformers import Seq2SeqTrainer, Seq2SeqTrainingArguments
args = Seq2SeqTrainingArguments("out", average_tokens_across_devices = True)
trainer = Seq2SeqTrainer(model = model, args = args, eval_dataset = rows)
""",
            reported=True,
        ),
        Example(
            """\
from unsloth import FastModel
from transformers import AutoModelForSequenceClassification, Trainer, TrainingArguments
model, tokenizer = FastModel.from_pretrained(
    "answerdotai/ModernBERT-base", auto_model = AutoModelForSequenceClassification, device_map = local_rank)
trainer = Trainer(model = model, args = TrainingArguments(eval_strategy = "steps"))
""",
            """\
from unsloth import FastModel
from transformers import AutoModelForSequenceClassification, Trainer, TrainingArguments
model, tokenizer = FastModel.from_pretrained(
    "answerdotai/ModernBERT-base", auto_model = AutoModelForSequenceClassification, device_map = local_rank)
trainer = Trainer(model = model, args = TrainingArguments(eval_strategy = "steps", \
average_tokens_across_devices = False))
""",
        ),
        Example(
            """\
from transformers import AutoModelForSequenceClassification, Trainer, TrainingArguments
model = AutoModelForSequenceClassification.from_pretrained("answerdotai/ModernBERT-base", device_map = local_rank)
trainer = Trainer(model = model, args = TrainingArguments(eval_strategy = "steps"))
""",
            f"""\
from transformers import AutoModelForSequenceClassification, Trainer, TrainingArguments
# TODO[nb2ddp] DDP203: {_CLASSIFIER}
model = AutoModelForSequenceClassification.from_pretrained("answerdotai/ModernBERT-base", device_map = local_rank)
trainer = Trainer(model = model, args = TrainingArguments(eval_strategy = "steps"))
""",
        ),
        Example(
            """\
from transformers import AutoModelForSequenceClassification, Trainer, TrainingArguments
model = AutoModelForSequenceClassification.from_config(config)
trainer = Trainer(model = model, args = TrainingArguments(average_tokens_across_devices = True))
""",
            f"""\
from transformers import AutoModelForSequenceClassification, Trainer, TrainingArguments
# TODO[nb2ddp] DDP203: {_CLASSIFIER}
model = AutoModelForSequenceClassification.from_config(config)
trainer = Trainer(model = model, args = TrainingArguments(average_tokens_across_devices = True))
""",
        ),
        Example(
            """\
from transformers import AutoModelForSequenceClassification, Trainer, TrainingArguments
model = AutoModelForSequenceClassification.from_pretrained("answerdotai/ModernBERT-base", device_map = local_rank)
model.accepts_loss_kwargs = False
trainer = Trainer(model = model, args = TrainingArguments(eval_strategy = "steps"))
"""
        ),
    ),
)
