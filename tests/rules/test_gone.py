"""Findings about an argument that only older versions have."""

from __future__ import annotations

from nb2ddp.facts.program import Program
from nb2ddp.options import Options
from nb2ddp.rules.versions import gone_from_the_library
from tests.examples import table
from tests.notebooks import example_notebook

CODE = (
    "from unsloth import FastModel\nfrom transformers import TrainingArguments\n"
    "args = TrainingArguments(warmup_ratio = 0.1)\n"
)


def test_an_older_version_is_asked_for() -> None:
    (finding,) = gone_from_the_library.find(Program(example_notebook(CODE), Options()))
    expected = "warmup_ratio was removed after transformers 5.14.1; the requirements ask for a version that has it"
    assert finding.message == expected


@table(__file__)
def test_what_is_gone_and_what_unsloth_takes_or_leaves_out(code: str, answers: list[str]) -> None:
    """The version of transformers that the notebook asks for determines its version of TRL."""
    findings = gone_from_the_library.find(Program(example_notebook(f"{code}\n"), Options()))
    assert [finding.message.split()[0] for finding in findings] == answers
