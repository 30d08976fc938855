"""Findings about a step that processes cannot share equally, and about a batch that does not grow with the GPU."""

from __future__ import annotations

import pytest

from nb2ddp.facts.program import Program
from nb2ddp.options import Launch, Options
from nb2ddp.rules.batch import batch_not_split
from tests.examples import table
from tests.notebooks import example_notebook

SFT = (
    "from trl import SFTConfig\nargs = SFTConfig(per_device_train_batch_size = {}, gradient_accumulation_steps = {})\n"
)
GRPO = SFT.replace("SFT", "GRPO").replace(")\n", ", num_generations = {})\n")


@table(__file__, "shared")
def test_a_step_that_the_processes_cannot_share(code: str, answers: list[str]) -> None:
    processes, *expected = answers
    options = Options(launch=Launch(gpus=int(processes.split()[0])))
    found = [finding.message for finding in batch_not_split.find(Program(example_notebook(code), options))]
    larger = [message for message in found if "cannot share" in message]
    assert len(larger) == len(expected)
    assert all(each in message for each, message in zip(expected, larger, strict=True))


@table(__file__, "kept")
def test_why_the_batch_does_not_grow_with_the_gpu(code: str, answers: list[str]) -> None:
    found = [finding.message for finding in batch_not_split.find(Program(example_notebook(code), Options()))]
    sizes = [message for message in found if "the script splits it" in message]
    for message, why in zip(sizes, answers, strict=True):
        is_kept = "with at most the per-device batch of the notebook" in message
        assert why in message if is_kept else why == "grows"


@pytest.mark.parametrize(("loss", "warned"), [("bnpo", True), ("dapo", False)])
def test_a_mean_over_the_tokens_of_a_micro_batch(loss: str, warned: bool) -> None:
    code = GRPO.format(4, 2, 8).replace(", num", f", loss_type = {loss!r}, num")
    found = batch_not_split.find(Program(example_notebook(code), Options()))
    assert any("bnpo" in finding.message for finding in found) == warned
