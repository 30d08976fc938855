"""DDP203: weigh every token alike over processes and accumulation steps; leave a mean over samples one."""

from __future__ import annotations

from collections.abc import Iterator

from nb2ddp.keywords import passed, set_argument
from nb2ddp.models import ModelKind, has_new_head, loads
from nb2ddp.program import Finding, Program
from nb2ddp.rule import Example, Rule
from nb2ddp.tree import keyword

FIELD = "average_tokens_across_devices"
#: Trainers whose loss is a mean over tokens.
_TOKEN_TRAINERS = ("SFTTrainer", "UnslothTrainer", "Seq2SeqTrainer")
_TOKEN_CONFIGS = ("SFTConfig", "UnslothTrainingArguments", "Seq2SeqTrainingArguments")


def find(program: Program) -> Iterator[Finding]:
    tree, training = program.tree, program.training
    trainers = training.trainer_classes
    plain = "Trainer" in trainers and program.model_kind is not ModelKind.ENCODER
    for call in training.arguments:
        config = tree.family(call.func).rsplit(".", 1)[-1]
        general = config == "TrainingArguments"
        counts_tokens = config.endswith(_TOKEN_CONFIGS) or (
            general and (plain or any(t.endswith(_TOKEN_TRAINERS) for t in trainers))
        )
        if passed(tree, call, FIELD) is not None:
            continue
        if general and "Trainer" in trainers and _is_mean_over_samples(program):
            message = f"{FIELD} is not set: transformers 5 multiplies a classifier's evaluation loss by the processes"
            yield Finding(call, message, edits=(set_argument(tree, call, FIELD, "False"),))
        elif counts_tokens:
            message = f"{FIELD} is not set: older transformers weigh each process alike, not each token"
            yield Finding(call, message, edits=(set_argument(tree, call, FIELD, "True"),))


def _is_mean_over_samples(program: Program) -> bool:
    """True where Unsloth loads a classifier and no trainer brings a loss of its own.

    Unsloth counts no tokens for such a head in training. For a model that transformers loads itself, transformers does,
    in every process alike.
    """
    tree = program.tree
    own_loss = any(keyword(call, "compute_loss_func") is not None for call in program.training.trainers)
    return not own_loss and any(
        tree.qualified(call.func).startswith("unsloth.") and has_new_head(tree, call) for call in loads(tree)
    )


RULE = Rule(
    code="DDP203",
    name="tokens-not-averaged",
    summary="`average_tokens_across_devices = True` where the loss is a mean over tokens, `False` for a classifier.",
    why="Each process sees another number of tokens in a step. A mean of the processes' means weighs short samples "
    "more than one GPU would. With this field the loss is one mean over all tokens of the step; transformers before 5 "
    "defaults to False. A classifier's loss is a mean over samples: with the field, transformers 5 multiplies it by "
    "the number of processes in every evaluation (1.49 on one GPU, 2.98 on two; transformers 5.17).",
    find=find,
    examples=(
        Example(
            "from trl import SFTConfig\nargs = SFTConfig(max_steps = 60)\n",
            "from trl import SFTConfig\nargs = SFTConfig(max_steps = 60, average_tokens_across_devices = True)\n",
        ),
        Example("from trl import DPOConfig\nargs = DPOConfig(max_steps = 60)\n"),
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
    ),
)
