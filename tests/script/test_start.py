"""The contents of a script's setup block, which depend on its notebook."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from nb2ddp.convert import convert_source
from nb2ddp.options import Launch, Options
from tests.notebooks import CELLS, markdown, text


def script(arguments: str = "", training: str = "trainer.train()", first: str = "", machines: int = 1) -> str:
    """Return the script of a notebook whose config has these additional arguments."""
    trainer = CELLS[2].replace("gradient_accumulation_steps = 4", f"gradient_accumulation_steps = 4, {arguments}")
    notebook = text(*filter(None, [first]), CELLS[1], trainer.replace("trainer.train()", training))
    return convert_source(notebook, options=Options(launch=Launch(machines=machines))).files["train.py"]


class TestFoldersOfTheMachines:
    def test_one_machine_asks_nothing(self) -> None:
        assert "compare_folders" not in script()

    def test_several(self) -> None:
        source = script(machines=2)
        assert source.index("timeout=timedelta(hours=2))") < source.index("\ncompare_folders()\n")
        assert source.count("def smallest_gpu(") == 1
        assert "min(gather_object([min(gpus" in source


class TestWaiting:
    """The first process group decides how long a process waits, not `ddp_timeout`."""

    FIRST = "!wget -q https://example.org/rows.json"

    @pytest.mark.parametrize(
        ("arguments", "timeout"),
        [
            ("", "hours=2"),
            ("ddp_timeout = 1800", "hours=2"),
            ("ddp_timeout = 36000", "hours=10"),
            ("ddp_timeout = 10000", "seconds=10000"),
            ("ddp_timeout = seconds", "hours=2"),
        ],
    )
    def test_the_longer_one_counts(self, arguments: str, timeout: str) -> None:
        assert f"timeout=timedelta({timeout}))" in script(arguments, first=self.FIRST)

    def test_nothing_waits_where_nothing_is_waited_for(self) -> None:
        assert "timedelta" not in script("ddp_timeout = 36000")


@pytest.mark.e2e
def test_a_later_timeout_has_no_effect(tmp_path: Path) -> None:
    """`_wait_seconds` of the setup block relies on this; check it with the installed accelerate and transformers."""
    (tmp_path / "job.py").write_text(
        "from datetime import timedelta\nfrom accelerate import PartialState\n"
        "PartialState(timeout=timedelta(hours=2))\n"
        "import torch\nfrom transformers import TrainingArguments\n"
        'TrainingArguments("o", ddp_timeout=5, use_cpu=True).device\n'
        "group = torch.distributed.distributed_c10d._get_default_group()\n"
        'print(group._get_backend(torch.device("cpu")).options._timeout)\n'
    )
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    done = subprocess.run([*launcher, "job.py"], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout.count("2:00:00") == 2


TRAINS = "from trl import {0}Config, {0}Trainer\n{0}Trainer(model = model, args = {0}Config({1})).train()"
SIZES = "per_device_train_batch_size = 2, gradient_accumulation_steps = 4"


class TestSplitForTheGpu:
    """The per-device batch grows with the memory of the GPU, if the notebook chose it only to fit into memory."""

    def test_samples_and_completions(self) -> None:
        """The script of a notebook that trains with SFT and then with GRPO has a function for each."""
        rewards = "per_device_train_batch_size = 1, gradient_accumulation_steps = 1, num_generations = 4"
        source = convert_source(text(*CELLS[:2], TRAINS.format("SFT", SIZES), TRAINS.format("GRPO", rewards))).files
        assert "= split_batch(2, 4)  # 8 samples a step in the notebook\n" in source["train.py"]
        assert "= split_completions(1, 1, 4)  # 4 completions a step in the notebook\n" in source["train.py"]
        assert "def split_batch(" in source["train.py"]
        assert "def split_completions(" in source["train.py"]

    @pytest.mark.parametrize(
        ("name", "metadata", "sentence", "gigabytes"),
        [
            ("sft", {"colab": {"gpuType": "A100"}}, "", 40),
            ("AMD-sft", {"colab": {"gpuType": "T4"}}, "To run this, press *Run All* on **AMD Dev Cloud**!", 192),
            ("sft", {"kaggle": {"accelerator": "nvidiaTeslaT4"}}, "", 15),
            ("sft", {"colab": {"gpuType": "T4"}}, "To run this, ... on a Google Colab L4 instance!", 23),
            ("GLM_A100(80GB)", {"colab": {"gpuType": "A100"}}, "To run this ... on your A100!", 80),
            ("Llama3.3_(70B)_A100-Conversational", {}, "", 40),
            ("kaggle_T4x2", {}, "This notebook needs a V100-32GB.", 32),
            ("sft", {"colab": {}, "accelerator": "GPU"}, "", 15),
        ],
    )
    def test_the_gpu_of_the_notebook(self, name: str, metadata: dict[str, Any], sentence: str, gigabytes: int) -> None:
        source = convert_source(text(markdown(sentence), *CELLS[1:], metadata=metadata), name).files["train.py"]
        memory = "" if gigabytes == 15 else f", notebook_gpu={gigabytes}e9"
        assert f"= split_batch(2, 4{memory})  # 8 samples a step in the notebook\n" in source

    @pytest.mark.parametrize("metadata", [{}, {"colab": {"gpuType": "X9"}}])
    @pytest.mark.parametrize("sentence", ["A T4 takes 5 minutes, an H100 less.", "To run this, press *Run all*!"])
    def test_the_batch_does_not_grow_where_no_gpu_is_named(self, metadata: dict[str, Any], sentence: str) -> None:
        notebook = text(markdown(sentence), CELLS[1], f"# for Tesla T4, V100\n{CELLS[2]}", metadata=metadata)
        assert "= split_batch(2, 4, largest=2)  #" in convert_source(notebook, "SQL4-GT4").files["train.py"]

    @pytest.mark.parametrize(
        ("lines", "split"),
        [
            ("BATCH = 2", "split_batch(BATCH, 4)  # 8 samples a step in the notebook"),
            (
                "if torch.cuda.get_device_properties(0).total_memory > 40e9:\n    BATCH = 2\nelse:\n    BATCH = 1",
                "split_batch(BATCH, 4, largest=BATCH)  # the notebook's samples a step",
            ),
            (
                "BATCH = max(1, int(torch.cuda.mem_get_info()[0] // 8e9))",
                "split_batch(BATCH, 4, largest=BATCH)  # the notebook's samples a step",
            ),
        ],
    )
    def test_a_batch_that_the_notebook_works_out(self, lines: str, split: str) -> None:
        trainer = CELLS[2].replace("batch_size = 2", "batch_size = BATCH")
        source = convert_source(text(CELLS[1], f"{lines}\n{trainer}")).files["train.py"]
        assert f"= {split}\n" in source

    @pytest.mark.parametrize(
        "arguments",
        [
            "group_by_length = True",
            'train_sampling_strategy = "group_by_length"',
            "dataloader_drop_last = True",
        ],
    )
    def test_left_as_it_is(self, arguments: str) -> None:
        assert "= split_batch(2, 4, largest=2)" in script(arguments)

    def test_left_as_it_is_for_code_that_comes_with_a_model(self) -> None:
        load = CELLS[1].replace('1B")', '1B", trust_remote_code = True)')
        assert "= split_batch(2, 4, largest=2)" in convert_source(text(load, CELLS[2])).files["train.py"]

    def test_left_as_it_is_beside_one_that_grows(self) -> None:
        one = CELLS[2].replace("gradient_accumulation_steps = 4", "gradient_accumulation_steps = 4, {}")
        source = convert_source(text(CELLS[1], one.format(""), one.format("group_by_length = True"))).files["train.py"]
        assert "= split_batch(2, 4)" in source
        assert "= split_batch(2, 4, largest=2)" in source

    @pytest.mark.parametrize(
        ("size", "call"),
        [
            ("notebook", "split_batch(2, 4, largest=2)"),
            (1, "split_batch(2, 4, largest=1)"),
            (4, "split_batch(2, 4, largest=4)"),
        ],
    )
    def test_the_option(self, size: Any, call: str) -> None:
        source = convert_source(text(*CELLS[1:]), options=Options(batch=size)).files["train.py"]
        assert f"= {call}  # 8 samples a step in the notebook\n" in source


@pytest.mark.parametrize(
    ("size", "arguments", "grows"),
    [(1, "", False), (2, "", True), (1, ", data_collator = pad", True), (1, ", processing_class = tokenizer", True)],
)
def test_rows_that_nothing_pads_go_one_by_one_where_the_notebook_sends_them_so(
    size: int, arguments: str, grows: bool
) -> None:
    """Without collator and tokenizer a Trainer stacks its rows, which fails if their lengths differ."""
    trains = (
        "from transformers import Trainer, TrainingArguments\n"
        f"args = TrainingArguments(per_device_train_batch_size = {size}, gradient_accumulation_steps = 4)\n"
        f"Trainer(model = model, train_dataset = rows, args = args{arguments}).train()"
    )
    source = convert_source(text(*CELLS[:2], trains)).files["train.py"]
    assert ("largest=1)" not in source) == grows


REPEATED = (
    "if world_size > 1:\n"
    '    print("Rows repeated in an epoch:",'
    " -len(trainer.train_dataset) % (trainer.args.train_batch_size * world_size))"
)


class TestCheckpointing:
    """One call, above the comment of `train()`, where it has an effect."""

    def test_above_the_comment(self) -> None:
        source = script(training="# Train!\n# It takes a while\ntrainer.train()")
        called = f"skip_checkpointing_if_it_fits(trainer)\nshare_rows(trainer)\n{REPEATED}"
        assert f"\n{called}\n# Train!\n# It takes a while\ntrainer.train()\n" in source

    @pytest.mark.parametrize("size", ["notebook", 2])
    def test_the_option_leaves_the_notebooks_setting(self, size: Any) -> None:
        source = convert_source(text(*CELLS), options=Options(batch=size)).files["train.py"]
        assert "checkpointing" not in source


def test_a_picture_that_was_pasted_into_text_is_cut_short() -> None:
    picture = f"![loss](data:image/png;base64,{'iVBORw0KGgo' * 40}==) falls"
    script = convert_source(text(markdown(picture), *CELLS)).files["train.py"]
    assert "\n# ![loss](data:image/png;base64,...) falls\n" in script


def test_unsloth_that_comes_after_the_training_does_not_change_it() -> None:
    train = "from trl import SFTTrainer\ntrainer = SFTTrainer(model, train_dataset = rows)\ntrainer.train()"
    after = "from unsloth import FastLanguageModel\nFastLanguageModel.for_inference(model)"
    own = convert_source(text("model, rows = make()", train, after)).files["train.py"]
    assert own.count("unsloth") == 1
    cloned = convert_source(text("import own as o", "o.trainer.train()", after)).files["train.py"]
    assert "import unsloth  # before" in cloned  # it is unknown what `own` imports


def test_one_blank_line_is_between_the_parts_of_the_block_without_unsloth() -> None:
    training = "from trl import SFTTrainer\ntrainer = SFTTrainer(model, train_dataset = rows)\ntrainer.train()"
    source = convert_source(text(training)).files["train.py"]
    assert re.search(r"[^\n]\n\nlocal_rank = ", source)
    assert re.search(r"[^\n]\n\nimport torch\n[^\n]", source)


def test_a_text_lora_with_a_service_a_secret_and_a_time_limit_has_80_lines() -> None:
    first = 'import os, random, requests\ntoken = os.environ["TOKEN"]\nrows = requests.get("https://a.org").json()'
    block = (
        script(first=f"{first}\nrandom.shuffle(rows)").partition("# %% Distributed setup\n")[2].partition("\n# %% ")[0]
    )
    lines = [line for line in block.splitlines() if line.strip()]
    parts = ("def run_once(", "def skip_checkpointing_if_it_fits(", "if missing := ", "timedelta(", "set_seed(")
    assert [part for part in parts if part not in block] == []
    assert len(lines) <= 80
