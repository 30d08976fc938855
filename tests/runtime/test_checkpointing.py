"""Gradient checkpointing is off if no GPU is short of memory."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("datasets")

import datasets
import torch

from nb2ddp.estimate.answer import MEASURED_MODELS
from nb2ddp.runtime import checkpointing

MEMORY = Path(__file__).parents[2] / "benchmarks" / "results" / "memory.json"

#: The sizes of Llama 3.2 3B, for which the memory of 8 rows of 450 tokens was estimated and measured.
LLAMA_3B: dict[str, Any] = {
    "hidden_size": 3072,
    "intermediate_size": 8192,
    "num_hidden_layers": 28,
    "num_attention_heads": 24,
}


#: All measured trainings without checkpointing, of models for which scripts may turn it off: the model and the run.
RUNS = [
    pytest.param(model, run, id=f"{model['model'][6:]}-{model['precision']}-{run['rows']}x{run['tokens']}-{number}")
    for number, model in enumerate(json.loads(MEMORY.read_text(encoding="utf-8"))["models"])
    for run in model["runs"]
    if not model["checkpointing"] and model["type"] in MEASURED_MODELS
]


def choose(
    monkeypatch: pytest.MonkeyPatch,
    free: float | None,
    world_size: int = 1,
    model_type: str = "llama",
    others: tuple[bool, ...] = (),
    half: bool = True,
    dtype: torch.dtype = torch.float32,
    trained: int = 97_255_424,
    batch: tuple[int, int] = (8, 450),
    **sizes: Any,
) -> SimpleNamespace:
    """Return a trainer after the check of its GPU's free gigabytes; it trains 8 rows of up to 450 tokens at a time.

    `others` says whether the training fits the GPUs of the other processes.
    """
    cuda = SimpleNamespace(is_available=lambda: free is not None, mem_get_info=lambda: ((free or 0) * 1e9, 150e9))
    weights = [
        SimpleNamespace(nbytes=trained, requires_grad=True),
        SimpleNamespace(nbytes=10**12, requires_grad=False),
    ]
    model = SimpleNamespace(
        config=SimpleNamespace(model_type=model_type, **sizes), parameters=lambda: weights, dtype=dtype
    )
    rows = datasets.Dataset.from_dict({"input_ids": [[1] * 2 * batch[1], [1] * 30, [1] * batch[1], [1]]})
    trainer = SimpleNamespace(
        model=model,
        args=SimpleNamespace(
            per_device_train_batch_size=batch[0],
            gradient_accumulation_steps=2,
            gradient_checkpointing=True,
            fp16=False,
            bf16=half,
        ),
        train_dataset=rows.select([1, 2, 3]),  # without the first
    )
    monkeypatch.setattr(checkpointing, "torch", SimpleNamespace(cuda=cuda))
    monkeypatch.setattr(checkpointing, "gather_object", lambda own: [*own, *others])
    monkeypatch.setattr(checkpointing, "world_size", world_size)
    checkpointing.skip_checkpointing_if_it_fits(trainer)
    return trainer


@pytest.mark.parametrize(("free", "fits"), [(147, True), (13, True), (12.5, False), (0.5, False)])
def test_room_to_spare(
    free: float, fits: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    trainer = choose(monkeypatch, free, **LLAMA_3B)
    assert trainer.args.gradient_checkpointing is not fits
    assert (getattr(trainer.model, "_unsloth_gradient_checkpointing", None) is False) is fits
    state = "off" if fits else "on"
    expected = f"Gradient checkpointing: {state} (off needs 10.8 GB beside the model)\n"
    assert capsys.readouterr().out == expected


@pytest.mark.parametrize(("others", "fits"), [((True, True), True), ((True, False), False)])
def test_all_processes_decide_alike(others: tuple[bool, ...], fits: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    trainer = choose(monkeypatch, 100, world_size=3, others=others, **LLAMA_3B)
    assert trainer.args.gradient_checkpointing is not fits


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
    assert f"off needs {needed} GB" in capsys.readouterr().out


@pytest.mark.parametrize(("width", "needed"), [(256, "16.1"), (None, "10.8")])
def test_heads_wider_than_the_model(
    width: int | None, needed: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    choose(monkeypatch, 100, model_type="qwen3", head_dim=width, **LLAMA_3B)
    assert f"off needs {needed} GB" in capsys.readouterr().out


def test_the_copy_of_gradients_that_ddp_keeps(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    choose(monkeypatch, 100, world_size=2, **LLAMA_3B)
    assert "off needs 10.9 GB" in capsys.readouterr().out


@pytest.mark.parametrize(("free", "model_type"), [(None, "llama"), (100, "gemma3_text"), (100, "lfm2")])
def test_no_gpu_or_a_model_that_was_not_measured(
    free: float | None, model_type: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    trainer = choose(monkeypatch, free, model_type=model_type)  # its config has no such sizes
    assert trainer.args.gradient_checkpointing is True
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(("model", "run"), RUNS)
def test_measured_memory(model: dict[str, Any], run: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """The estimate is never too low, and at most 1.5 times too high."""
    measured = (run["peak"] - run["before"]) / 1e9
    for free, fits in ((measured / 0.85, False), (1.5 * measured / 0.85, True)):
        trainer = choose(
            monkeypatch, free, model.get("gpus", 1), model["type"], trained=model["trained"],
            batch=(run["rows"], run["tokens"]), **model["config"],
        )  # fmt: skip
        assert trainer.args.gradient_checkpointing is not fits
