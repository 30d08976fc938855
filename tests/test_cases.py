"""Notebooks after public reports of what goes wrong on several GPUs: each is right, or its script says what is not.

Those that can train on the CPU are rehearsed too, by `tests/e2e/test_trains.py`.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

import pytest

from nb2ddp.convert import convert_source
from nb2ddp.results import NotebookError

CASES = Path(__file__).parent.parent / "fixtures" / "cases"


class Right(NamedTuple):
    """The codes of the script's `TODO`s, and what the script has and does not have."""

    todos: tuple[str, ...] = ()
    has: tuple[str, ...] = ()
    lacks: str = ""


EXPECTED = {
    "executable_batch": Right(("DDP408",)),
    "free_memory": Right(has=("= run_once(lambda: torch.cuda.mem_get_info())",)),
    "grpo_stream": Right(has=("share_rows(trainer)", "share_streams(trainer)")),
    "logits_for_metrics": Right(("DDP205",)),
    "made_up_rows": Right(has=("share_rows(trainer)",)),
    "map_on_gpus": Right(has=('globals().pop("__file__", None)', "share_rows(trainer)")),
    "own_loss": Right(("DDP203",), has=("1 / self.args.gradient_accumulation_steps",)),
    "prepared_model": Right(lacks="prepare_model("),
    "second_gpu": Right(has=('os.environ.setdefault("CUDA_VISIBLE_DEVICES", "0,2,3,4,5,6,7")',)),
    "sft_stream": Right(has=("share_rows(trainer)", "share_streams(trainer)")),
    "vllm_after": Right(has=('globals().pop("__file__", None)',)),
    "clock_seed": Right(has=("share_rows(trainer)",)),
}


@pytest.mark.parametrize("name", EXPECTED)
def test_script_is_right_or_says_what_is_not(name: str) -> None:
    expected = EXPECTED[name]
    done = convert_source((CASES / f"{name}.ipynb").read_text(encoding="utf-8"), name)
    script = done.files["train.py"]
    assert tuple(re.findall(r"TODO\[nb2ddp\] (\w+):", script)) == expected.todos
    assert all(part in script for part in expected.has)
    assert not expected.lacks or expected.lacks not in script


def test_a_model_that_the_environment_shards_is_refused() -> None:
    with pytest.raises(NotebookError) as caught:
        convert_source((CASES / "fsdp2_env.ipynb").read_text(encoding="utf-8"), "fsdp2_env")
    found = [(each.code, each.message.partition(" ")[0]) for each in caught.value.diagnostics]
    assert found == [("DDP004", "UNSLOTH_FSDP2"), ("DDP004", "UNSLOTH_TP_SIZE")]


def test_each_case_has_its_expectation() -> None:
    assert {path.stem for path in CASES.glob("*.ipynb")} == {*EXPECTED, "fsdp2_env"}
