"""What is said of an argument that only older versions have."""

from __future__ import annotations

import pytest

from nb2ddp.facts.program import Program
from nb2ddp.options import Options
from nb2ddp.rules.versions import gone_from_the_library
from tests.notebooks import example_notebook

CODE = (
    "from unsloth import FastModel\nfrom transformers import TrainingArguments\n"
    "args = TrainingArguments(warmup_ratio = 0.1)\n"
)


def test_an_older_version_is_asked_for() -> None:
    (finding,) = gone_from_the_library.find(Program(example_notebook(CODE), Options()))
    said = "warmup_ratio is gone after transformers 5.14.1; the requirements ask for a version that has it"
    assert finding.message == said


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("from trl.models import DDPOStableDiffusionPipeline", ["DDPOStableDiffusionPipeline"]),
        ("from trl.trainer.utils import DataCollatorForCompletionOnlyLM", ["DataCollatorForCompletionOnlyLM"]),
        ("from trl.trainer import SFTTrainer", []),
        ("from trl.import_utils import is_vllm_available", []),  # still there
        ("from trl.experimental.orpo import ORPOTrainer", []),
    ],
)
def test_names_of_the_modules_of_trl(line: str, told: list[str]) -> None:
    findings = gone_from_the_library.find(
        Program(example_notebook(f"from unsloth import FastModel\n{line}\n"), Options())
    )
    assert [finding.message.split()[0] for finding in findings] == told


@pytest.mark.parametrize(
    "call",
    [
        "DPOConfig(rpo_alpha = 1.0)",  # Unsloth leaves it out, on one GPU too
        "DPOTrainer(max_prompt_length = 9, beta = 0.1)",
        "GRPOConfig(max_prompt_length = 9, max_completion_length = 9)",
        "GRPOTrainer(tools = [look])",
        "SFTTrainer(tokenizer = tokenizer, max_seq_length = 9)",  # Unsloth moves them to the config
    ],
)
def test_arguments_that_unsloth_takes_or_leaves_out(call: str) -> None:
    code = f"from unsloth import FastModel\nfrom trl import {call.partition('(')[0]}\nmade = {call}\n"
    assert list(gone_from_the_library.find(Program(example_notebook(code), Options()))) == []


@pytest.mark.parametrize(
    ("installed", "told"),
    [
        ("transformers==4.55.4", False),
        ("transformers==4.55.4 trl", False),
        ("'transformers<4.56' 'trl>=0.20'", False),
        ("transformers==4.55.4 trl==1.1.0", True),  # pip may be told to take both
        ("transformers==4.56.2", True),
        ("'transformers<5'", True),
    ],
)
def test_a_transformers_that_the_notebook_asks_for_decides_which_trl_it_has(installed: str, told: bool) -> None:
    code = f"!pip install unsloth {installed}\nfrom unsloth import FastModel\nfrom trl import BCOConfig\n"
    found = gone_from_the_library.find(Program(example_notebook(code), Options()))
    assert [finding.message.split()[0] for finding in found] == (["BCOConfig"] if told else [])
