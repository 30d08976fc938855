"""DDP203: weigh every token alike over processes and accumulation steps."""

from __future__ import annotations

from collections.abc import Iterator

from nb2ddp.keywords import passed, set_argument
from nb2ddp.models import ModelKind
from nb2ddp.program import Finding, Program
from nb2ddp.rule import Example, Rule

FIELD = "average_tokens_across_devices"
#: Trainers whose loss is a mean over tokens.
_TOKEN_TRAINERS = ("SFTTrainer", "UnslothTrainer", "Seq2SeqTrainer")
_TOKEN_CONFIGS = ("SFTConfig", "UnslothTrainingArguments", "Seq2SeqTrainingArguments")


def find(program: Program) -> Iterator[Finding]:
    tree, training = program.tree, program.training
    trainers = [tree.family(call.func).rsplit(".", 1)[-1] for call in training.trainers]
    plain = "Trainer" in trainers and program.model_kind is not ModelKind.ENCODER
    for call in training.arguments:
        config = tree.family(call.func).rsplit(".", 1)[-1]
        counts_tokens = config.endswith(_TOKEN_CONFIGS) or (
            config == "TrainingArguments" and (plain or any(t.endswith(_TOKEN_TRAINERS) for t in trainers))
        )
        if counts_tokens and passed(program.tree, call, FIELD) is None:
            yield Finding(
                call,
                f"{FIELD} is not set: older transformers weigh each process alike, not each token",
                edits=(set_argument(program.tree, call, FIELD, "True"),),
            )


RULE = Rule(
    code="DDP203",
    name="tokens-not-averaged",
    summary="`average_tokens_across_devices = True` where the loss is a mean over tokens.",
    why="Each process sees another number of tokens in a step. A mean of the processes' means weighs short samples "
    "more than one GPU would. With this field the loss is one mean over all tokens of the step; transformers before 5 "
    "defaults to False.",
    find=find,
    examples=(
        Example(
            "from trl import SFTConfig\nargs = SFTConfig(max_steps = 60)\n",
            "from trl import SFTConfig\nargs = SFTConfig(max_steps = 60, average_tokens_across_devices = True)\n",
        ),
        Example("from trl import DPOConfig\nargs = DPOConfig(max_steps = 60)\n"),
    ),
)
