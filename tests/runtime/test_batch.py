"""The notebook's global batch, split over the processes of a job."""

from __future__ import annotations

import math
from types import SimpleNamespace

import pytest

pytest.importorskip("torch")

from nb2ddp.runtime import batch, machines


def start(monkeypatch: pytest.MonkeyPatch, world_size: int, *gigabytes: float) -> None:
    """Simulate one of `world_size` processes that see GPUs with these amounts of memory."""
    gpus = [SimpleNamespace(total_memory=each * 10**9) for each in gigabytes]
    cuda = SimpleNamespace(device_count=lambda: len(gpus), get_device_properties=gpus.__getitem__)
    for module in (batch, machines):
        monkeypatch.setattr(module, "torch", SimpleNamespace(cuda=cuda))
    monkeypatch.setattr(batch, "world_size", world_size)


@pytest.mark.parametrize(
    ("world_size", "gigabytes", "expected"),
    [
        (1, [], (2, 4)),  # no GPU
        (1, [15.8], (2, 4)),  # a T4 too
        (1, [23.8], (2, 4)),
        (1, [42.5], (4, 2)),
        (1, [85.0], (8, 1)),
        (2, [150.1, 150.1], (4, 1)),
        (2, [15.8, 150.1], (2, 2)),  # the smallest GPU limits all processes
        (4, [150.1] * 4, (2, 1)),
        (8, [150.1] * 8, (1, 1)),
        (1, [8.0], (1, 8)),  # less memory than the notebook's GPU
    ],
)
def test_the_per_device_batch_grows_with_the_memory(
    world_size: int, gigabytes: list[float], expected: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    start(monkeypatch, world_size, *gigabytes)
    assert batch.split_batch(2, 4) == expected
    assert batch.split_batch(2, 4, largest=2)[0] <= 2


def test_eight_samples_keep_a_gpu_busy(monkeypatch: pytest.MonkeyPatch) -> None:
    """A larger batch would only use the memory that is needed to keep gradient checkpointing off."""
    start(monkeypatch, 1, 150.1)
    assert batch.split_batch(2, 16) == (8, 4)
    assert batch.split_batch(16, 2) == (16, 2)


def test_a_notebook_for_a_larger_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    start(monkeypatch, 1, 85.0)
    assert batch.split_batch(2, 4, notebook_gpu=40e9) == (4, 2)
    assert batch.split_batch(2, 4, notebook_gpu=80e9) == (2, 4)


@pytest.mark.parametrize("gigabytes", [6.0, 15.8, 42.5, 85.0, 150.1])
@pytest.mark.parametrize("world_size", [1, 2, 3, 4, 8])
def test_the_global_batch_stays_where_it_can_be_shared(
    world_size: int, gigabytes: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    start(monkeypatch, world_size, *[gigabytes] * world_size)
    for per_device in range(1, 9):
        for accumulation in range(1, 9):
            total = per_device * accumulation
            for largest in (0, 1, per_device):
                size, steps = batch.split_batch(per_device, accumulation, largest)
                assert total <= size * steps * world_size < total + world_size
                assert size <= max(1, largest or per_device * gigabytes / 15)


@pytest.mark.parametrize("world_size", [1, 2, 3, 4, 6, 8])
def test_completions_come_in_whole_prompts(world_size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    start(monkeypatch, world_size, 150.1)
    for per_device in range(1, 9):
        for accumulation in range(1, 5):
            for generations in (1, 2, 4, 6, 8):
                whole = per_device * accumulation % generations == 0
                total = (per_device if whole else generations) * accumulation
                size, steps = batch.split_completions(per_device, accumulation, generations)
                made = size * steps * world_size
                assert made % generations == 0
                assert total <= made < total + math.lcm(generations, world_size)
                assert size <= (per_device if whole else generations)


@pytest.mark.parametrize(("largest", "expected"), [(1, (1, 8)), (3, (2, 4)), (4, (4, 2)), (16, (8, 1))])
def test_a_largest_batch_that_a_person_chose(
    largest: int, expected: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    start(monkeypatch, 1, 150.1)
    assert batch.split_batch(2, 4, largest=largest) == expected
    assert batch.split_completions(2, 4, 4, largest=largest) == expected
    assert batch.split_completions(4, 2, 4) == (4, 2)


def test_machines_compare_their_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    start(monkeypatch, 4, 150.1)
    monkeypatch.setattr(machines, "gather_object", lambda mine: [*mine, 15.8e9])
    monkeypatch.setattr(batch, "smallest_gpu", machines.smallest_gpu)
    assert batch.split_batch(2, 16) == (2, 4)


def test_one_line_says_it(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    start(monkeypatch, 2, 150.1)
    batch.split_batch(2, 4)
    batch.split_completions(1, 4, 4)
    start(monkeypatch, 3, 150.1)
    batch.split_batch(2, 4)
    assert capsys.readouterr().out.splitlines() == [
        "Samples a step: 8 (per-device batch 4 x accumulation 1 x processes 2; in the notebook 8)",
        "Completions a step: 4 (per-device batch 1 x accumulation 2 x processes 2; in the notebook 4)",
        "Samples a step: 9 (per-device batch 3 x accumulation 1 x processes 3; in the notebook 8)",
    ]
