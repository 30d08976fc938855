"""What a conversion for some number of processes says of a step that they cannot share equally."""

from __future__ import annotations

import pytest

from nb2ddp.facts.program import Program
from nb2ddp.options import Launch, Options
from nb2ddp.rules.batch import batch_not_split
from tests.notebooks import example_notebook

SFT = (
    "from trl import SFTConfig\nargs = SFTConfig(per_device_train_batch_size = {}, gradient_accumulation_steps = {})\n"
)
GRPO = SFT.replace("SFT", "GRPO").replace(")\n", ", num_generations = {})\n")


@pytest.mark.parametrize(
    ("code", "processes", "said"),
    [
        (SFT.format(2, 4), 4, ""),
        (SFT.format(2, 4), 3, "the notebook's 8 samples a step equally: a step takes 9;"),
        (SFT.format(1, 1), 2, "the notebook's 1 sample a step equally: a step takes 2;"),
        (SFT.format("size", 4), 3, ""),
        (GRPO.format(1, 1, 4), 4, ""),
        (GRPO.format(7, 1, 7), 4, "the notebook's 7 completions a step equally: a step takes 28;"),
        (GRPO.format(1, 1, 6), 4, "the notebook's 6 completions a step equally: a step takes 12;"),
    ],
)
def test_a_step_that_the_processes_cannot_share(code: str, processes: int, said: str) -> None:
    options = Options(launch=Launch(gpus=processes))
    found = [finding.message for finding in batch_not_split.find(Program(example_notebook(code), options))]
    larger = [message for message in found if "cannot share" in message]
    assert len(larger) == bool(said)
    assert all(f"{processes} processes cannot share {said}" in message for message in larger)


LOADED = "from unsloth import FastModel\nmodel = FastModel.from_pretrained('m', trust_remote_code = {})\n"
PLAIN = (
    "from transformers import Trainer, TrainingArguments\nargs = TrainingArguments(per_device_train_batch_size = 1)\n"
    "Trainer(model, args).train()\n"
)
LATER = "from trl import SFTTrainer\n" + SFT.format(1, 4) + "SFTTrainer(model, args = args).train()\n"
OWN = (
    "from trl import SFTTrainer\nclass Own(SFTTrainer):\n"
    "    def {}(self, model = None, inputs = None, return_outputs = False, **kwargs):\n"
    "        return mean(model, inputs)\n"
)


@pytest.mark.parametrize(
    ("code", "kept"),
    [
        (LOADED.format(False) + SFT.format(2, 4), [""]),
        (LOADED.format(True) + SFT.format(2, 4), ["whose model may bring a loss of its own (trust_remote_code)"]),
        ("size = 2\nsize = 4\n" + SFT.format("size", 4), ["which computes it"]),
        ("if big:\n    size = 2\nelse:\n    size = 4\n" + SFT.format("size", 4), ["which computes it"]),
        ("sizes = {'one': 2}\n" + SFT.format("sizes['one']", 4), ["which computes it"]),
        (SFT.format("2 * size()", 4), ["which computes it"]),
        (SFT.format(2, 4).replace("SFT", "ORPO"), ["whose loss takes a mean over a batch"]),
        (OWN.format("get_train_dataloader") + SFT.format(2, 4), ["whose trainer loads its rows itself"]),
        (OWN.format("compute_loss") + SFT.format(2, 4), ["which computes its loss itself"]),
        (PLAIN + LATER, ["whose trainer has nothing to pad rows with", ""]),
        (LATER + PLAIN, ["", "whose trainer has nothing to pad rows with"]),
    ],
)
def test_why_the_batch_does_not_grow_with_the_gpu(code: str, kept: list[str]) -> None:
    found = [finding.message for finding in batch_not_split.find(Program(example_notebook(code), Options()))]
    sizes = [message for message in found if "the script splits it" in message]
    assert len(sizes) == len(kept)
    for message, why in zip(sizes, kept, strict=True):
        assert why in message
        assert ("with at most the per-device batch of the notebook" in message) == bool(why)


@pytest.mark.parametrize(("loss", "warned"), [("bnpo", True), ("dapo", False)])
def test_a_mean_over_the_tokens_of_a_micro_batch(loss: str, warned: bool) -> None:
    code = GRPO.format(4, 2, 8).replace(", num", f", loss_type = {loss!r}, num")
    found = batch_not_split.find(Program(example_notebook(code), Options()))
    assert any("bnpo" in finding.message for finding in found) == warned
