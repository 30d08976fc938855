"""DDP203: weigh every token alike over processes and accumulation steps; leave a mean over samples one."""

from __future__ import annotations

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
#: Training arguments of trainers whose loss is a mean over tokens.
_TOKEN_CONFIGS = ("SFTConfig", "UnslothTrainingArguments", "Seq2SeqTrainingArguments")

_FALSE = (
    "transformers 5 would multiply a classifier's evaluation loss by the number of processes; the script sets it to"
    " False"
)
_TRUE = "older transformers would weigh each process alike, not each token; the script sets it"
_CLASSIFIER = (
    "transformers 5 takes the loss of a classifier that it loads itself for a part of a sum: evaluation losses grow"
    " with the processes, gradients with the micro-batches of a step; set model.accepts_loss_kwargs = False after"
    " loading it"
)
_MULTIPLIES = (
    "transformers 5 multiplies the evaluation losses of an encoder-decoder model by the number of processes; its"
    " training and metrics are the notebook's: divide these losses to compare them"
)
_DIVIDES = "counts the tokens of all processes, whose gradients are averaged again; the script multiplies by them"
_UNUSED = (
    "Trainer then adds up the losses of a step's micro-batches, whose number changes with that of processes; divide a"
    " sum over tokens by it"
)


def find(program: Program) -> Iterator[Finding]:
    tree, training = program.tree, program.training
    plain = "Trainer" in training.trainer_classes
    loader = _loader_of_classifier(program) if plain else ""
    counts = training.has_trainer(*TOKEN_TRAINERS) or (plain and program.model_kind is not ModelKind.ENCODER)
    fields = [passed(tree, call, FIELD) for call in training.arguments]
    for call in [call for call, field in zip(training.arguments, fields, strict=True) if field is None]:
        config = tree.class_name(call.func)
        general = config == "TrainingArguments"
        if general and loader == "unsloth":
            yield Finding(call, f"{FIELD} is not set: {_FALSE}", (set_argument(tree, call, FIELD, "False"),))
        elif general and loader:
            yield Finding(call, _CLASSIFIER, severity=Severity.WARNING)
        elif config.endswith(_TOKEN_CONFIGS) or (general and counts):
            yield Finding(call, f"{FIELD} is not set: {_TRUE}", (set_argument(tree, call, FIELD, "True"),))
    if loader != "unsloth" and not any(field and tree.literal(field.value) is False for field in fields):
        yield from _own_means(program)
    yield from _left_out(program)
    yield from _multiplied(program)


def _multiplied(program: Program) -> Iterator[Finding]:
    """Evaluations of encoder-decoder models, whose loss is a mean of a batch however many tokens they are told."""
    training = program.training
    for call, name in zip(training.trainers, training.trainer_classes, strict=True):
        translates = name == "Seq2SeqTrainer" or (name == "Trainer" and program.model_kind is ModelKind.ENCODER_DECODER)
        if translates and keyword(call, "eval_dataset") is not None:
            yield Finding(call, _MULTIPLIES, severity=Severity.WARNING)


def _losses(tree: Tree) -> Iterator[cst.FunctionDef]:
    """The `compute_loss` of each class of trainers of the notebook's own."""
    for function in tree.live(cst.FunctionDef):
        owner = tree.scope(function)
        bases = [tree.class_name(base.value) for base in owner.bases] if isinstance(owner, cst.ClassDef) else []
        if function.name.value == "compute_loss" and any(base.endswith("Trainer") for base in bases):
            yield function


def _own_means(program: Program) -> Iterator[Finding]:
    """Losses of a trainer of the notebook's own that are divided by the tokens of all processes."""
    tree, world_size = program.tree, program.name("world_size")
    for function in _losses(tree):
        is_scaled = any(word in tree.text(function) for word in (world_size, "num_processes"))
        for mean in tree.within(function, cst.BinaryOperation) if not is_scaled else []:
            if isinstance(mean.operator, cst.Divide) and tree.text(mean.right) == COUNT:
                yield Finding(mean, f"{COUNT} {_DIVIDES}", (Wrap(mean, "", f" * {world_size}"),))


def _left_out(program: Program) -> Iterator[Finding]:
    """Losses of the notebook's own that are told how many tokens a step has, and are means all the same."""
    tree = program.tree
    for function in dict.fromkeys([*_losses(tree), *map(tree.definition, tree.given("compute_loss_func"))]):
        if not isinstance(function, cst.FunctionDef):
            continue
        taken = [param.name.value for param in tree.within(function.params, cst.Param)]
        if COUNT in taken and not any(function is tree.function(use) for use in tree.loads(COUNT)):
            yield Finding(function, f"this loss leaves {COUNT} unused: {_UNUSED}", severity=Severity.WARNING)


def _loader_of_classifier(program: Program) -> str:
    """The package that loads a classifier; "" where none does, or where the notebook says how its loss is to be read.

    Unsloth counts no items in the training of such a head, so that the loss stays a mean there; transformers counts.
    """
    tree = program.tree
    if tree.given("compute_loss_func") or tree.attributes("accepts_loss_kwargs"):
        return ""
    packages = [tree.qualified(call.func).partition(".")[0] for call in program.loads if has_new_head(tree, call)]
    return next(iter(packages), "")


RULE = Rule(
    code="DDP203",
    name="tokens-not-averaged",
    summary="`average_tokens_across_devices = True` where the loss is a mean over tokens, `False` for a classifier"
    " that Unsloth loads; of one that transformers loads, a warning. A loss of the notebook's own over all tokens is"
    " multiplied by the processes.",
    why="Each process sees another number of tokens in a step. A mean of the processes' means weighs short samples "
    "more than one GPU would. With this field the loss is one mean over all tokens of the step; transformers before 5 "
    "defaults to False. A classifier's loss is a mean over samples: with the field, transformers 5 multiplies it by "
    "the number of processes in every evaluation (1.49 on one GPU, 2.98 on two; transformers 5.17). A `compute_loss`"
    " of the notebook's own that divides by `num_items_in_batch` divides by the tokens of all processes, and their"
    " gradients are averaged after that: it is multiplied by their number, as Trainer does. One that leaves the count"
    " unused gets a warning: Trainer does not divide it by the accumulation steps (transformers 5.17). The same holds"
    " for models that do so themselves: Whisper, T5, BART and their like. Measured with a small Whisper (CPU, 1 x 4 in"
    " one process, 1 x 2 in each of two): with the field, losses and gradient norms of training agree (18.2992,"
    " 7.3683), and the loss of an evaluation is twice that of one process (9.2311, 4.6155); without it the evaluation"
    " agrees, and training sees half the loss (9.1496, 3.6841). So the field stays, with a warning.",
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
        return cross_entropy(model(**inputs).logits, inputs["labels"])
""",
            reported=True,
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
            reported=True,
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
