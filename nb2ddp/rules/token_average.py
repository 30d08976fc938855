"""DDP203: The loss of a step is averaged over the tokens, or samples, of all ranks.

Each rank sees another number of tokens in a step. With `average_tokens_across_devices = True`, the loss is one mean
over all tokens of the step, as on one GPU; transformers before 5 defaults to False. An explicit False had no effect on
one GPU, and becomes True.

A classifier's loss is a mean over samples. With the field, transformers 5.17 multiplies it by the number of processes
in every evaluation (1.49 on one GPU, 2.98 on two), so a classifier that Unsloth loads gets False; one that transformers
loads gets a `TODO`.

A `compute_loss` of the notebook's own is multiplied by the number of processes, as Trainer does, if it divides by
`num_items_in_batch` or is a mean of a micro-batch: DDP averages the gradients after that. A `compute_loss_func` is
multiplied by Trainer itself if the field is set, in evaluations too with transformers 5; the script leaves the field
False and multiplies in training.

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
from nb2ddp.rules.rule import Example, Finding, Rule
from nb2ddp.syntax.arguments import passed, set_argument
from nb2ddp.syntax.edits import Wrap
from nb2ddp.syntax.tree import Tree, keyword

FIELD = "average_tokens_across_devices"
COUNT = "num_items_in_batch"
#: What makes a model with new weights.
_FROM_CONFIG = re.compile(r"transformers(\.\w+)*\.(\w+\.(_?from_config)|[A-Z]\w*For\w+)")
_WITH_OUTPUTS = "return_outputs"
_PROCESSES = re.compile("world_size|num_processes")
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
_DIVIDES = "counts the tokens of all processes, whose gradients are averaged again; the script multiplies by them"
_LEAVES = f"this loss leaves {COUNT} unused: Trainer then adds up the means of a step's micro-batches,"
_FEWER = f"{_LEAVES} of which each of several processes has fewer; the script multiplies by the processes"
_IN_TRAINING = (
    f"{_LEAVES} and multiplies them by the number of processes, in evaluations too (transformers 5); the script"
    " multiplies in training alone"
)
_UNUSED = f"{_LEAVES} whose number changes with that of processes; divide a sum over tokens by it"


def find(program: Program) -> Iterator[Finding]:
    tree, training = program.tree, program.training
    plain = "Trainer" in training.trainer_classes
    loader = _loader_of_classifier(program) if plain else ""
    means = list(_mean_functions(tree))
    stays_false, summed = False, False
    for call in training.arguments:
        value = _value(program, call, loader, bool(means))
        given = passed(tree, call, FIELD)
        is_false = given is not None and tree.literal(given.value) is False
        stays_false |= value == "False" or (is_false and not value)
        if value == "True" and (given is None or is_false):
            yield Finding(call, _FALSE_TO_TRUE if is_false else _TRUE, (set_argument(tree, call, FIELD, value),))
        elif value == "False" and not is_false and (given is None or means):
            yield Finding(call, _FALSE, (set_argument(tree, call, FIELD, value),))
        elif given is None and tree.class_name(call.func) == "TrainingArguments" and loader not in ("", "unsloth"):
            summed = True
    for load in [load for load in program.loads if has_new_head(tree, load)][:1] if summed else ():
        yield Finding(load, _CLASSIFIER, todo=True)
    for made in program.execution.calls(_FROM_CONFIG) if plain and not _says_how(tree) else ():
        if has_new_head(tree, made):
            yield Finding(made, _CLASSIFIER, todo=True)
    for function in means:
        yield from _in_training_alone(program, function)
    yield from [] if stays_false else _own_means(program)
    yield from _means_of_methods(program)
    yield from _multiplied(program)


def _value(program: Program, call: cst.Call, loader: str, has_mean: bool) -> str:
    """What a config must be told, as code; "" where nothing is known to be right.

    Args:
        program: the notebook.
        call: builds the config.
        loader: the package that loads a classifier; see `_loader_of_classifier`.
        has_mean: True where a loss function of the notebook's own is multiplied by the processes already.
    """
    training, config = program.training, program.tree.class_name(call.func)
    is_general = config == "TrainingArguments"
    is_decoder = "Trainer" in training.trainer_classes and program.model_kind is not ModelKind.ENCODER
    counts_tokens = is_decoder or training.has_trainer(*TOKEN_TRAINERS)
    if not is_general and not config.endswith(_TOKEN_CONFIGS):
        return ""
    if has_mean or (is_general and loader == "unsloth"):
        return "False"
    return "True" if not is_general or (counts_tokens and not loader) else ""


def _multiplied(program: Program) -> Iterator[Finding]:
    """Evaluations of encoder-decoder models, whose loss is a mean of a batch however many tokens they are told."""
    training = program.training
    for call, name in zip(training.trainers, training.trainer_classes, strict=True):
        translates = name == "Seq2SeqTrainer" or (name == "Trainer" and program.model_kind is ModelKind.ENCODER_DECODER)
        if translates and keyword(call, "eval_dataset") is not None:
            yield Finding(call, _MULTIPLIES, severity=Severity.WARNING)


def _losses(tree: Tree) -> Iterator[cst.FunctionDef]:
    """The `compute_loss` of each class of trainers of the notebook's own, unless it counts the processes itself."""
    for function in tree.live(cst.FunctionDef):
        owner = tree.scope(function)
        bases = [tree.class_name(base.value) for base in owner.bases] if isinstance(owner, cst.ClassDef) else []
        is_trainers = any(base.endswith("Trainer") for base in bases)
        if function.name.value == "compute_loss" and is_trainers and not _PROCESSES.search(tree.text(function)):
            yield function


def _own_means(program: Program) -> Iterator[Finding]:
    """Losses of a trainer of the notebook's own that are divided by the tokens of all processes."""
    tree = program.tree
    for function in _losses(tree):
        for mean in tree.within(function, cst.BinaryOperation):
            if isinstance(mean.operator, cst.Divide) and tree.text(mean.right) == COUNT:
                yield Finding(mean, f"{COUNT} {_DIVIDES}", (Wrap(mean, "", " * world_size"),))


def _means_of_methods(program: Program) -> Iterator[Finding]:
    """The `compute_loss` of the notebook's own trainers that is a mean, however many tokens a step has."""
    tree = program.tree
    for function in _losses(tree):
        count = _unused_count(tree, function)
        if not count:
            continue
        factor = f" * (1 if {count} is None else world_size)"
        edits = tuple(_multiply(loss, factor) for loss in _losses_in_training(tree, function))
        yield Finding(function, _FEWER if edits else _UNUSED, edits, severity=None if edits else Severity.WARNING)


def _mean_functions(tree: Tree) -> Iterator[cst.FunctionDef]:
    """Functions that are handed to a trainer as its loss, and are means however many tokens a step has."""
    for function in dict.fromkeys(map(tree.definition, tree.given("compute_loss_func"))):
        if isinstance(function, cst.FunctionDef) and _unused_count(tree, function):
            yield function


def _in_training_alone(program: Program, function: cst.FunctionDef) -> Iterator[Finding]:
    """Multiply what a loss function returns by the processes while it trains."""
    tree = program.tree
    factor = " * (world_size if torch.is_grad_enabled() else 1)"
    losses = _returned(tree, function)
    if losses and not _PROCESSES.search(tree.text(function)):
        yield Finding(function, _IN_TRAINING, tuple(_multiply(loss, factor) for loss in losses))


def _unused_count(tree: Tree, function: cst.FunctionDef) -> str:
    """How a loss could ask for the number of items, as code, where it does not; "" where it does or cannot."""
    options = function.params.star_kwarg
    taken = [param.name.value for param in tree.within(function.params, cst.Param)]
    name = COUNT if COUNT in taken else options.name.value if options is not None else ""
    if not name or any(function is tree.function(use) for use in tree.loads(name)):
        return ""
    return name if name == COUNT else f'{name}.get("{COUNT}")'


def _returned(tree: Tree, function: cst.FunctionDef) -> list[cst.BaseExpression]:
    """What a function returns."""
    returns = [each for each in tree.within(function, cst.Return) if tree.owner(each) is function]
    return [each.value for each in returns if each.value is not None]


def _losses_in_training(tree: Tree, function: cst.FunctionDef) -> Iterator[cst.BaseExpression]:
    """What a `compute_loss` returns where it is not asked for outputs, which evaluations ask for."""
    for loss in _returned(tree, function):
        if isinstance(loss, cst.IfExp) and tree.text(loss.test) == _WITH_OUTPUTS:
            loss = loss.orelse
        tests = [above for above in tree.ancestors(loss) if isinstance(above, cst.If)]
        asked = [test.body for test in tests if tree.text(test.test) == _WITH_OUTPUTS]
        is_asked = not {*asked}.isdisjoint(tree.ancestors(loss))
        if not (is_asked or isinstance(loss, cst.Tuple) or _WITH_OUTPUTS in tree.text(loss)):
            yield loss  # what takes `return_outputs` itself may give outputs too


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


RULE = Rule(
    name="tokens-not-averaged",
    find=find,
    examples=(
        Example(
            """\
class Weighted(SFTTrainer):
    def compute_loss(self, model, inputs, return_outputs = False, num_items_in_batch = None):
        return summed(model, inputs) / num_items_in_batch
""",
            """\
class Weighted(SFTTrainer):
    def compute_loss(self, model, inputs, return_outputs = False, num_items_in_batch = None):
        return summed(model, inputs) / num_items_in_batch * world_size
""",
        ),
        Example(
            """\
class Masked(SFTTrainer):
    def compute_loss(self, model, inputs, return_outputs = False, num_items_in_batch = None):
        outputs = model(**inputs)
        loss = cross_entropy(outputs.logits, inputs["labels"])
        return (loss, outputs) if return_outputs else loss
""",
            """\
class Masked(SFTTrainer):
    def compute_loss(self, model, inputs, return_outputs = False, num_items_in_batch = None):
        outputs = model(**inputs)
        loss = cross_entropy(outputs.logits, inputs["labels"])
        return (loss, outputs) if return_outputs else loss * (1 if num_items_in_batch is None else world_size)
""",
        ),
        Example(
            """\
class Penalized(SFTTrainer):
    def compute_loss(self, model, inputs, return_outputs = False, **kwargs):
        loss, outputs = super().compute_loss(model, inputs, return_outputs = True)
        if return_outputs:
            return loss + penalty(model), outputs
        else:
            return loss + penalty(model)
""",
            """\
class Penalized(SFTTrainer):
    def compute_loss(self, model, inputs, return_outputs = False, **kwargs):
        loss, outputs = super().compute_loss(model, inputs, return_outputs = True)
        if return_outputs:
            return loss + penalty(model), outputs
        else:
            return (loss + penalty(model)) * (1 if kwargs.get("num_items_in_batch") is None else world_size)
""",
        ),
        Example(
            """\
class Passed(SFTTrainer):
    def compute_loss(self, model, inputs, return_outputs = False, num_items_in_batch = None):
        return super().compute_loss(model, inputs, return_outputs)
""",
            reported=True,
        ),
        Example(
            """\
from trl import SFTConfig, SFTTrainer
def loss_of(outputs, labels, **kwargs):
    return cross_entropy(outputs.logits, labels)
trainer = SFTTrainer(model = model, compute_loss_func = loss_of, args = SFTConfig(max_steps = 60))
""",
            """\
from trl import SFTConfig, SFTTrainer
def loss_of(outputs, labels, **kwargs):
    return cross_entropy(outputs.logits, labels) * (world_size if torch.is_grad_enabled() else 1)
trainer = SFTTrainer(model = model, compute_loss_func = loss_of, args = SFTConfig(max_steps = 60, \
average_tokens_across_devices = False))
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
