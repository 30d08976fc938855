"""Gradient checkpointing: off where memory is not short, if need be for fewer rows at a time."""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("datasets")

import datasets
import torch

from nb2ddp.runtime import checkpointing, memory

#: The sizes of Llama 3.2 3B, in gigabytes what 8 rows of 450 tokens were estimated and measured to need.
LLAMA_3B: dict[str, Any] = {
    "hidden_size": 3072,
    "intermediate_size": 8192,
    "num_hidden_layers": 28,
    "num_attention_heads": 24,
}


class FakeRows(tuple[int, ...]):
    """What all processes came to, in place of a tensor."""

    __slots__ = ()

    def __new__(cls, *rows: int) -> FakeRows:
        return super().__new__(cls, rows)

    def min(self) -> int:
        return min(self)


def choose(
    monkeypatch: pytest.MonkeyPatch,
    free: float | None,
    world_size: int = 1,
    model_type: str = "llama",
    total: float = 20,
    others: tuple[int, ...] = (),
    half: bool = True,
    dtype: torch.dtype = torch.float32,
    **sizes: Any,
) -> SimpleNamespace:
    """A trainer of 8 rows a step, the longest of 450 tokens, after the look at its GPU's free gigabytes.

    `others` are the rows that the other processes came to.
    """
    cuda = SimpleNamespace(is_available=lambda: free is not None, mem_get_info=lambda: ((free or 0) * 1e9, total * 1e9))
    weights = [
        SimpleNamespace(nbytes=97_255_424, requires_grad=True),
        SimpleNamespace(nbytes=10**12, requires_grad=False),
    ]
    model = SimpleNamespace(
        config=SimpleNamespace(model_type=model_type, **sizes), parameters=lambda: weights, dtype=dtype
    )
    rows = datasets.Dataset.from_dict({"input_ids": [[1] * 900, [1] * 30, [1] * 450, [1]]})
    trainer = SimpleNamespace(
        model=model,
        args=SimpleNamespace(
            per_device_train_batch_size=8,
            gradient_accumulation_steps=2,
            gradient_checkpointing=True,
            device="cpu",
            fp16=False,
            bf16=half,
        ),
        accelerator=SimpleNamespace(gather=lambda rows: FakeRows(rows, *others)),
        train_dataset=rows.select([1, 2, 3]),  # the first was left out
        _train_batch_size=8,
    )
    monkeypatch.setattr(checkpointing, "torch", SimpleNamespace(cuda=cuda, tensor=lambda value, device: value))
    monkeypatch.setattr(checkpointing, "world_size", world_size)
    checkpointing.skip_checkpointing_if_it_fits(trainer)
    return trainer


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
    free: float,
    total: float,
    rows: int | None,
    needed: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    trainer = choose(monkeypatch, free, total=total, **LLAMA_3B)
    assert trainer.args.gradient_checkpointing is (rows is None)
    assert (getattr(trainer.model, "_unsloth_gradient_checkpointing", None) is False) is (rows is not None)
    taken = trainer.args.per_device_train_batch_size
    assert trainer._train_batch_size == taken == (rows or 8)
    assert trainer.args.gradient_accumulation_steps == 16 // taken
    state = "off" if rows else "on"
    said = f"Gradient checkpointing is {state}: without it {taken} rows need {needed} GB beside the model\n"
    split = f"So the split is: per-device batch {taken} x accumulation {16 // taken}\n" if taken < 8 else ""
    assert capsys.readouterr().out == said + split


@pytest.mark.parametrize(("others", "rows"), [((8, 4), 4), ((8, 0), None)])
def test_as_many_rows_in_all_processes(
    others: tuple[int, ...], rows: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As many as the smallest GPU has memory for; checkpointing stays in all where it stays in one."""
    trainer = choose(monkeypatch, 100, world_size=3, others=others, **LLAMA_3B)
    assert trainer.args.per_device_train_batch_size == (rows or 8)
    assert trainer.args.gradient_checkpointing is (rows is None)


@pytest.mark.parametrize(
    ("half", "dtype", "needed"),
    [(True, torch.float32, "10.8"), (False, torch.bfloat16, "10.8"), (False, torch.float32, "21.0")],
)
def test_a_value_of_float32_takes_twice_as_much(
    half: bool,
    dtype: torch.dtype,
    needed: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    choose(monkeypatch, 100, half=half, dtype=dtype, **LLAMA_3B)
    assert f"need {needed} GB" in capsys.readouterr().out


@pytest.mark.parametrize(("width", "needed"), [(256, "16.1"), (None, "10.8")])
def test_heads_wider_than_the_model(
    width: int | None, needed: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    choose(monkeypatch, 100, model_type="qwen3", head_dim=width, **LLAMA_3B)
    assert f"need {needed} GB" in capsys.readouterr().out


def test_the_copy_of_gradients_that_ddp_keeps(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    choose(monkeypatch, 100, world_size=2, **LLAMA_3B)
    assert "need 10.9 GB" in capsys.readouterr().out


@pytest.mark.parametrize(("free", "model_type"), [(None, "llama"), (100, "gemma3_text"), (100, "lfm2")])
def test_no_gpu_or_a_model_that_was_not_measured(
    free: float | None, model_type: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    trainer = choose(monkeypatch, free, model_type=model_type)  # whose config has no such sizes
    assert trainer.args.gradient_checkpointing is True
    assert capsys.readouterr().out == ""


def test_the_most_rows_of_those_that_divide_the_batch() -> None:
    """Against the same, written as one expression."""
    draw = random.Random(0)
    for _ in range(20_000):
        size, row, rest = draw.randint(1, 24), draw.uniform(1e7, 1e10), draw.uniform(1e8, 1e11)
        free, total = draw.uniform(1e9, 1.5e11), draw.uniform(1e9, 1.5e11)
        fit = [n for n in range(1, size + 1) if not size % n and min(size * row, total / 4) <= n * row]
        expected = max((n for n in fit if n * row + rest < 0.85 * free), default=0)
        assert memory.rows_that_fit(size, row, rest, free, total) == expected
