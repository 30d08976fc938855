"""DDP105: what the notebook sets before it imports Unsloth is set before the setup block does."""

from __future__ import annotations

from collections.abc import Iterator

from nb2ddp.facts.environment import early_settings
from nb2ddp.facts.program import Program
from nb2ddp.rules.rule import Example, Finding, Rule


def find(program: Program) -> Iterator[Finding]:
    for node, name, _ in early_settings(program, program.installs):
        yield Finding(
            node, f"{name} would be set too late, after the import of Unsloth; the script sets it before", fixed=True
        )


RULE = Rule(
    code="DDP105",
    name="setting-after-import",
    summary="Environment variables that the notebook sets before it imports Unsloth are set in the setup block too.",
    why="Unsloth and torch read many of them when they are imported, such as UNSLOTH_VLLM_STANDBY, and the setup block "
    "imports Unsloth before the notebook does.",
    find=find,
    examples=(
        Example('import os\nos.environ["UNSLOTH_VLLM_STANDBY"] = "1"\nfrom unsloth import FastModel\n', reported=True),
        Example('import os\nos.environ["WANDB_LOG_MODEL"] = "checkpoint"\nfrom unsloth import FastModel\n'),
        Example('from unsloth import FastLanguageModel\nimport os\nos.environ["TOKENIZERS_PARALLELISM"] = "false"\n'),
    ),
)
