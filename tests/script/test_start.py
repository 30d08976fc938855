"""What a script checks when several processes start, each block executed as a script has it."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from nb2ddp.convert import convert_source
from nb2ddp.options import Launch, Options
from tests.notebooks import CELLS, markdown, text


def script(arguments: str = "", training: str = "trainer.train()", first: str = "", machines: int = 1) -> str:
    """The script of a notebook whose config has these further arguments."""
    trainer = CELLS[2].replace("gradient_accumulation_steps = 4", f"gradient_accumulation_steps = 4, {arguments}")
    notebook = text(*filter(None, [first]), CELLS[1], trainer.replace("trainer.train()", training))
    address = "10.0.0.1" if machines > 1 else None
    return convert_source(
        notebook, options=Options(launch=Launch(processes=2 * machines, machines=machines, main_process_ip=address))
    ).files["train.py"]


def execute(source: str, begin: str, end: str, **names: Any) -> None:
    start = source.index(begin)
    block = source[start : source.index(end, start)]
    exec(f"import os, sys\n{block}", names)


class TestFoldersOfTheMachines:
    def test_one_machine_asks_nothing(self) -> None:
        assert "gather_object" not in script()

    @pytest.mark.parametrize(("folders", "said"), [(["/a", "/b", "/a"], "/a, /b"), (["/a", "/a"], "")])
    def test_several(
        self, folders: list[str], said: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        source = script(machines=2)
        assert source.index("timeout=timedelta(hours=2))") < source.index("folders =")
        execute(source, "folders =", "\ntorch.cuda.OutOf", gather_object=lambda _: folders, is_main_process=True)
        expected = f"The machines work in different folders: {said}\n" if said else ""
        assert capsys.readouterr() == ("", expected)


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
    """What `wait_seconds` relies on, with the installed accelerate and transformers."""
    import subprocess

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


@pytest.mark.parametrize(("world_size", "supervised", "rewarded"), [(1, (2, 2), (4, 1)), (2, (2, 1), (2, 1))])
def test_one_script_splits_samples_and_completions(
    world_size: int, supervised: tuple[int, int], rewarded: tuple[int, int]
) -> None:
    """A notebook that trains with SFT and then with GRPO calls one function for both."""
    trains = "from trl import {0}Config, {0}Trainer\n{0}Trainer(model = model, args = {0}Config({1})).train()"
    sizes = "per_device_train_batch_size = 2, gradient_accumulation_steps = 2"
    rewards = "per_device_train_batch_size = 1, gradient_accumulation_steps = 1, num_generations = 4"
    source = convert_source(text(*CELLS[:2], trains.format("SFT", sizes), trains.format("GRPO", rewards))).files[
        "train.py"
    ]
    assert "split_batch(2, 2)" in source
    assert "split_batch(1, 1, 4)" in source
    split = split_batch(source, world_size)
    assert split(2, 2) == supervised
    assert split(1, 1, 4) == rewarded


def split_batch(source: str, world_size: int, *gigabytes: float, **names: Any) -> Callable[..., tuple[int, int]]:
    """The function of a script's setup block, for so many processes that see GPUs with so much memory."""
    gpus = [SimpleNamespace(total_memory=each * 10**9) for each in gigabytes]
    cuda = SimpleNamespace(device_count=lambda: len(gpus), get_device_properties=gpus.__getitem__)
    names |= {"torch": SimpleNamespace(cuda=cuda), "world_size": world_size, "is_main_process": True}
    exec("import sys\n" + source[source.index("def split_batch") : source.index("# %% Cell")], names)
    return cast("Callable[..., tuple[int, int]]", names["split_batch"])


class TestSplitForTheGpu:
    """The per-device batch grows with the memory of the GPU at hand, and the global batch stays."""

    @pytest.mark.parametrize(
        ("world_size", "gigabytes", "expected"),
        [
            (1, [], (2, 4)),  # no GPU
            (1, [15.8], (2, 4)),  # a T4 too
            (1, [23.8], (2, 4)),
            (1, [42.5], (4, 2)),
            (1, [85.0], (8, 1)),
            (2, [150.1, 150.1], (4, 1)),
            (2, [15.8, 150.1], (2, 2)),  # all take what the smallest has room for
            (4, [150.1] * 4, (2, 1)),
            (8, [150.1] * 8, (1, 1)),
            (1, [8.0], (1, 8)),  # less memory than the notebook's
        ],
    )
    def test_split(self, world_size: int, gigabytes: list[float], expected: tuple[int, int]) -> None:
        assert split_batch(script(), world_size, *gigabytes)(2, 4) == expected

    @pytest.mark.parametrize("gigabytes", [6.0, 15.8, 42.5, 85.0, 150.1])
    @pytest.mark.parametrize("world_size", [1, 2, 3, 4, 8])
    def test_the_global_batch_stays_where_it_can_be_shared(self, world_size: int, gigabytes: float) -> None:
        split = split_batch(script(), world_size, *[gigabytes] * world_size)
        for per_device in range(1, 9):
            for accumulation in range(1, 9):
                size, steps = split(per_device, accumulation)
                total, made = per_device * accumulation, size * steps * world_size
                assert total <= made < total + world_size
                assert size <= max(1, per_device * gigabytes / 15)

    @pytest.mark.parametrize(
        ("name", "metadata", "sentence", "said"),
        [
            ("sft", {"colab": {"gpuType": "A100"}}, "", "40 GB (A100)"),
            (
                "AMD-sft",
                {"colab": {"gpuType": "T4"}},
                "To run this, press *Run All* on **AMD Dev Cloud**!",
                "15 GB (T4)",
            ),
            ("sft", {"kaggle": {"accelerator": "nvidiaTeslaT4"}}, "", "15 GB (T4)"),
            ("sft", {}, "To run this, press *Run all* on a **free** Tesla T4 Google Colab instance!", "15 GB (T4)"),
            ("sft", {}, "To run this notebook on your L4 molab Pro instance, hit **Run all**", "23 GB (L4)"),
            ("sft", {}, "To run this, press **Run** on a molab **A100** or **H100** instance.", "40 GB (A100)"),
            ("sft", {}, "This notebook was developed on 1 H100 GPU.", "80 GB (H100)"),
            ("sft", {"colab": {"gpuType": "T4"}}, "To run this, ... on a Google Colab L4 instance!", "23 GB (L4)"),
            ("GLM_A100(80GB)", {"colab": {"gpuType": "A100"}}, "To run this ... on your A100!", "80 GB (A100)"),
            ("Llama3.3_(70B)_A100-Conversational", {}, "", "40 GB (A100)"),
            ("kaggle_T4x2", {}, "This notebook needs a V100-32GB.", "32 GB (V100)"),
        ],
    )
    def test_the_gpu_of_the_notebook(self, name: str, metadata: dict[str, Any], sentence: str, said: str) -> None:
        source = convert_source(text(markdown(sentence), *CELLS[1:], metadata=metadata), name).files["train.py"]
        assert f"# the notebook's batch is for {said}" in source

    @pytest.mark.parametrize("metadata", [{}, {"colab": {"gpuType": "X9"}}])
    @pytest.mark.parametrize("sentence", ["A T4 takes 5 minutes, an H100 less.", "To run this, press *Run all*!"])
    def test_a_t4_where_no_gpu_is_named(self, metadata: dict[str, Any], sentence: str) -> None:
        notebook = text(markdown(sentence), CELLS[1], f"# for Tesla T4, V100\n{CELLS[2]}", metadata=metadata)
        source = convert_source(notebook, "SQL4-GT4").files["train.py"]
        assert split_batch(source, 1, 150.1)(2, 4) == (8, 1)
        assert "# no GPU is named: taken as for 15 GB (T4)" in source

    @pytest.mark.parametrize(
        ("lines", "grows"),
        [
            ("BATCH = 2", True),
            ("if torch.cuda.get_device_properties(0).total_memory > 40e9:\n    BATCH = 2\nelse:\n    BATCH = 1", False),
            ("BATCH = max(1, int(torch.cuda.mem_get_info()[0] // 8e9))", False),
        ],
    )
    def test_a_batch_that_the_notebook_works_out(self, lines: str, grows: bool) -> None:
        trainer = CELLS[2].replace("batch_size = 2", "batch_size = BATCH")
        source = convert_source(text(CELLS[1], f"{lines}\n{trainer}")).files["train.py"]
        assert split_batch(source, 1, 150.1)(2, 4) == ((8, 1) if grows else (2, 4))

    @pytest.mark.parametrize(
        "arguments",
        [
            "group_by_length = True",
            'train_sampling_strategy = "group_by_length"',
            "dataloader_drop_last = True",
        ],
    )
    def test_left_as_it_is(self, arguments: str) -> None:
        assert split_batch(script(arguments), 1, 150.1)(2, 4) == (2, 4)
        assert "total_memory" not in script(arguments)

    def test_left_as_it_is_for_code_that_comes_with_a_model(self) -> None:
        load = CELLS[1].replace('1B")', '1B", trust_remote_code = True)')
        assert split_batch(convert_source(text(load, CELLS[2])).files["train.py"], 1, 150.1)(2, 4) == (2, 4)

    def test_left_as_it_is_beside_one_that_grows(self) -> None:
        one = CELLS[2].replace("gradient_accumulation_steps = 4", "gradient_accumulation_steps = 4, {}")
        source = convert_source(text(CELLS[1], one.format(""), one.format("group_by_length = True"))).files["train.py"]
        assert "split_batch(2, 4, grows=False)" in source
        split = split_batch(source, 1, 150.1)
        assert split(2, 4) == (8, 1)
        assert split(2, 4, grows=False) == (2, 4)

    def test_completions_beside_samples(self) -> None:
        trains = "from trl import {0}Config, {0}Trainer\n{0}Trainer(model = model, args = {0}Config({1})).train()"
        sizes = "per_device_train_batch_size = 2, gradient_accumulation_steps = 4"
        rewards = f"{sizes}, num_generations = 4"
        source = convert_source(text(CELLS[1], trains.format("SFT", sizes), trains.format("GRPO", rewards))).files
        split = split_batch(source["train.py"], 1, 150.1)
        assert split(2, 4) == (8, 1)
        assert split(2, 4, 4) == (2, 4)

    def test_machines_compare_their_memory(self) -> None:
        split = split_batch(script(machines=2), 4, 150.1, gather_object=lambda mine: [*mine, 15.8e9])
        assert split(2, 16) == (2, 4)

    def test_one_line_says_it(self, capsys: pytest.CaptureFixture[str]) -> None:
        split_batch(script(), 2, 150.1)(2, 4)
        assert capsys.readouterr() == ("Samples a step: 8 (4 x 1 in each of 2 processes)\n", "")
        split_batch(script(), 3, 150.1)(2, 4)
        assert capsys.readouterr().err == "Global batch: 9, not the notebook's 8; fewer steps an epoch\n"

    @pytest.mark.parametrize(
        ("arguments", "said"),
        [
            ("max_steps = 30", "more samples in as many steps"),
            ("max_steps = -1", "fewer steps an epoch"),
            ("max_steps = STEPS", "fewer steps an epoch, or more samples in as many"),
        ],
    )
    def test_what_more_samples_mean(self, arguments: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
        split_batch(script(arguments), 3, 150.1)(2, 4)
        assert capsys.readouterr().err == f"Global batch: 9, not the notebook's 8; {said}\n"

    def test_out_of_memory_names_the_setting(self) -> None:
        import torch

        line = next(line for line in script().splitlines() if "__notes__" in line)
        exec(line, {"torch": torch})
        try:
            said = traceback.format_exception(torch.cuda.OutOfMemoryError("CUDA out of memory"))
        finally:
            del torch.cuda.OutOfMemoryError.__notes__
        assert said[-1] == "Less memory a step: nb2ddp --per-device-batch-size notebook (or 1)\n"

    @pytest.mark.parametrize(("size", "expected"), [("notebook", (2, 4)), (1, (1, 8)), (4, (4, 2))])
    def test_the_option(self, size: Any, expected: tuple[int, int]) -> None:
        source = convert_source(text(*CELLS[1:]), options=Options(per_device_batch_size=size)).files["train.py"]
        assert split_batch(source, 1, 150.1)(2, 4) == expected
        assert "OutOfMemory" not in source


@pytest.mark.parametrize(
    ("size", "arguments", "grows"),
    [(1, "", False), (2, "", True), (1, ", data_collator = pad", True), (1, ", processing_class = tokenizer", True)],
)
def test_rows_that_nothing_pads_go_one_by_one_where_the_notebook_sends_them_so(
    size: int, arguments: str, grows: bool
) -> None:
    """Without collator and tokenizer a Trainer stacks its rows, which fails where they are of unequal length."""
    trains = (
        "from transformers import Trainer, TrainingArguments\n"
        f"args = TrainingArguments(per_device_train_batch_size = {size}, gradient_accumulation_steps = 4)\n"
        f"Trainer(model = model, train_dataset = rows, args = args{arguments}).train()"
    )
    source = convert_source(text(*CELLS[:2], trains)).files["train.py"]
    assert ("total_memory" in source) == grows


#: The sizes of Llama 3.2 3B, in gigabytes what 8 rows of 450 tokens were estimated and measured to need.
LLAMA_3B: dict[str, Any] = {
    "hidden_size": 3072,
    "intermediate_size": 8192,
    "num_hidden_layers": 28,
    "num_attention_heads": 24,
}


def choose(
    free: float | None,
    world_size: int = 1,
    model_type: str = "llama",
    total: float = 20,
    others: tuple[int, ...] = (),
    **sizes: Any,
) -> SimpleNamespace:
    """A trainer of 8 rows a step, the longest of 450 tokens, after a script has looked at its GPU's free gigabytes.

    `others` are the rows that the other processes came to.
    """
    source = script()
    cuda = SimpleNamespace(is_available=lambda: free is not None, mem_get_info=lambda: ((free or 0) * 1e9, total * 1e9))
    weights = [
        SimpleNamespace(nbytes=97_255_424, requires_grad=True),
        SimpleNamespace(nbytes=10**12, requires_grad=False),
    ]
    trainer = SimpleNamespace(
        model=SimpleNamespace(config=SimpleNamespace(model_type=model_type, **sizes), parameters=lambda: weights),
        args=SimpleNamespace(
            per_device_train_batch_size=8, gradient_accumulation_steps=2, gradient_checkpointing=True, device="cpu"
        ),
        accelerator=SimpleNamespace(gather=lambda rows: FakeRows(rows, *others)),
        train_dataset={"input_ids": [[1] * 30, [1] * 450, [1]]},
        _train_batch_size=8,
    )
    torch = SimpleNamespace(cuda=cuda, tensor=lambda value, device: value)
    names: dict[str, Any] = {"torch": torch, "world_size": world_size, "trainer": trainer}
    exec(source[source.index("def spare_checkpointing") : source.index("trainer.train()")], names)
    return trainer


class FakeRows(tuple[int, ...]):
    """What all processes came to, in place of a tensor."""

    __slots__ = ()

    def __new__(cls, *rows: int) -> FakeRows:
        return super().__new__(cls, rows)

    def min(self) -> int:
        return min(self)


class TestCheckpointing:
    """Off where memory is not short, if need be for fewer rows at a time; as the notebook has it everywhere else."""

    @pytest.mark.parametrize(
        ("free", "total", "rows", "needed"),
        [
            (147, 150, 8, "10.8"),
            (13, 20, 8, "10.8"),
            (12.5, 20, 4, "5.7"),  # 5.1 of it for the rows, and a quarter of the memory is 5
            (12.5, 24, None, "10.8"),  # a quarter is 6: so few rows would not keep the GPU busy
            (6, 8, 2, "3.1"),
            (0.5, 8, None, "10.8"),  # not one row fits
        ],
    )
    def test_room_to_spare(
        self, free: float, total: float, rows: int | None, needed: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        trainer = choose(free, total=total, **LLAMA_3B)
        assert trainer.args.gradient_checkpointing is (rows is None)
        assert (getattr(trainer.model, "_unsloth_gradient_checkpointing", None) is False) is (rows is not None)
        taken = trainer.args.per_device_train_batch_size
        assert trainer._train_batch_size == taken == (rows or 8)
        assert trainer.args.gradient_accumulation_steps == 16 // taken
        said = f"Checkpointing is {'off' if rows else 'on'}: without it {taken} rows need {needed} GB\n"
        assert capsys.readouterr().out == said

    @pytest.mark.parametrize(("others", "rows"), [((8, 4), 4), ((8, 0), None)])
    def test_as_many_rows_in_all_processes(self, others: tuple[int, ...], rows: int | None) -> None:
        """As many as the smallest GPU has memory for; checkpointing stays in all where it stays in one."""
        trainer = choose(100, world_size=3, others=others, **LLAMA_3B)
        assert trainer.args.per_device_train_batch_size == (rows or 8)
        assert trainer.args.gradient_checkpointing is (rows is None)

    def test_heads_wider_than_the_model(self, capsys: pytest.CaptureFixture[str]) -> None:
        choose(100, model_type="qwen3", head_dim=256, **LLAMA_3B)
        assert "need 16.1 GB" in capsys.readouterr().out

    def test_the_copy_of_gradients_that_ddp_keeps(self, capsys: pytest.CaptureFixture[str]) -> None:
        choose(100, world_size=2, **LLAMA_3B)
        assert "need 10.9 GB" in capsys.readouterr().out

    @pytest.mark.parametrize(("free", "model_type"), [(None, "llama"), (100, "gemma3_text"), (100, "lfm2")])
    def test_no_gpu_or_a_model_that_was_not_measured(
        self, free: float | None, model_type: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        trainer = choose(free, model_type=model_type)  # whose config has no such sizes
        assert trainer.args.gradient_checkpointing is True
        assert capsys.readouterr().out == ""

    @pytest.mark.parametrize("size", ["notebook", 2])
    def test_the_option_leaves_the_notebooks_setting(self, size: Any) -> None:
        source = convert_source(text(*CELLS), options=Options(per_device_batch_size=size)).files["train.py"]
        assert "checkpointing(" not in source
