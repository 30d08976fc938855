"""DDP202: A dense text model with LoRA gets `ddp_find_unused_parameters = False`.

transformers passes True for every adapter. With Unsloth's gradient checkpointing, DDP then marks each adapter weight
ready twice, and the first step fails.

Vision, audio, mixture-of-experts and encoder-decoder models may leave weights without a gradient, and False would hang
or fail. Unsloth 2026.10.6 and newer, which their scripts ask for, chooses the value for their adapters
(unsloth/models/_ddp_defaults.py); without adapters, transformers does.
"""

from __future__ import annotations

from collections.abc import Iterator

from nb2ddp.facts.loading import ModelKind, trains_lora
from nb2ddp.facts.program import Program
from nb2ddp.rules.rule import Example, Finding, Rule
from nb2ddp.syntax.arguments import passed, set_argument

FIELD = "ddp_find_unused_parameters"
_FAILS = "is not set: transformers would take True for an adapter, which fails or slows down; the script sets False"

_SOME = "False makes some {} models fail"
_UNKNOWN = "the kind of model is unknown, and False makes some fail"


def find(program: Program) -> Iterator[Finding]:
    tree, kind, adapters = program.tree, program.model_kind, trains_lora(program.tree, program.loads)
    for call in [call for call in program.training.arguments if passed(tree, call, FIELD) is None]:
        if kind is not ModelKind.DENSE_TEXT:
            chooses = "Unsloth (2026.10.6 or newer)" if adapters else "transformers"
            yield Finding(
                call,
                f"{FIELD} is left to {chooses}: {_UNKNOWN if kind is ModelKind.UNKNOWN else _SOME.format(kind.value)}",
            )
        elif adapters:
            yield Finding(call, f"{FIELD} {_FAILS}", (set_argument(tree, call, FIELD, "False"),))


RULE = Rule(
    name="unused-parameters-searched",
    find=find,
    examples=(
        Example(
            """\
from unsloth import FastLanguageModel
from trl import SFTConfig
model, tokenizer = FastLanguageModel.from_pretrained("unsloth/Llama-3.2-1B")
model = FastLanguageModel.get_peft_model(model, r = 16)
args = SFTConfig(max_steps = 60)
""",
            """\
from unsloth import FastLanguageModel
from trl import SFTConfig
model, tokenizer = FastLanguageModel.from_pretrained("unsloth/Llama-3.2-1B")
model = FastLanguageModel.get_peft_model(model, r = 16)
args = SFTConfig(max_steps = 60, ddp_find_unused_parameters = False)
""",
        ),
        Example(
            """\
from unsloth import FastLanguageModel
from trl import SFTConfig
model, tokenizer = FastLanguageModel.from_pretrained("unsloth/Qwen3-0.6B", full_finetuning = True)
args = SFTConfig(max_steps = 60)
"""
        ),
        Example(
            """\
from unsloth import FastLanguageModel
from trl import SFTConfig
model, tokenizer = FastLanguageModel.from_pretrained("adapter_of_last_week")
args = SFTConfig(max_steps = 60)
""",
            """\
from unsloth import FastLanguageModel
from trl import SFTConfig
model, tokenizer = FastLanguageModel.from_pretrained("adapter_of_last_week")
args = SFTConfig(max_steps = 60, ddp_find_unused_parameters = False)
""",
        ),
        Example(
            """\
import os
from dataclasses import dataclass
from unsloth import FastLanguageModel
from trl import SFTConfig
@dataclass
class Config:
    model: str = os.environ.get("MODEL", "unsloth/gpt-oss-20b")
cfg = Config()
model, tokenizer = FastLanguageModel.from_pretrained(cfg.model)
model = FastLanguageModel.get_peft_model(model, r = 16)
args = SFTConfig(max_steps = 60)
""",
            reported=True,
        ),
        Example(
            """\
from transformers import AutoModelForSequenceClassification
from unsloth import FastLanguageModel
from trl import GRPOConfig, GRPOTrainer
judge = AutoModelForSequenceClassification.from_pretrained("unsloth/judge-1B")
model, tokenizer = FastLanguageModel.from_pretrained("unsloth/Llama-3.2-1B")
model = FastLanguageModel.get_peft_model(model, r = 16)
trainer = GRPOTrainer(model = model, args = GRPOConfig(max_steps = 60))
""",
            """\
from transformers import AutoModelForSequenceClassification
from unsloth import FastLanguageModel
from trl import GRPOConfig, GRPOTrainer
judge = AutoModelForSequenceClassification.from_pretrained("unsloth/judge-1B")
model, tokenizer = FastLanguageModel.from_pretrained("unsloth/Llama-3.2-1B")
model = FastLanguageModel.get_peft_model(model, r = 16)
trainer = GRPOTrainer(model = model, args = GRPOConfig(max_steps = 60, ddp_find_unused_parameters = False))
""",
        ),
    ),
)
