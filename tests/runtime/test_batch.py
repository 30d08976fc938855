"""The notebook's global batch, split over the processes of a job."""

from __future__ import annotations

import math
from types import SimpleNamespace

import pytest

pytest.importorskip("torch")

from nb2ddp.runtime import batch, machines


def start(monkeypatch: pytest.MonkeyPatch, world_size: int, *gigabytes: float) -> None:
    """Be one of so many processes, which see GPUs with so much memory."""
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
        (2, [15.8, 150.1], (2, 2)),  # all take what the smallest has room for
        (4, [150.1] * 4, (2, 1)),
        (8, [150.1] * 8, (1, 1)),
        (1, [8.0], (1, 8)),  # less memory than the notebook's
    ],
)
def test_the_per_device_batch_grows_with_the_memory(
    world_size: int, gigabytes: list[float], expected: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    start(monkeypatch, world_size, *gigabytes)
    assert batch.split_batch(2, 4) == expected
    assert batch.split_batch_no_larger(2, 4)[0] <= 2


def test_a_notebook_for_a_larger_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    start(monkeypatch, 1, 85.0)
    assert batch.split_batch(2, 4, gpu_memory=40e9) == (4, 2)
    assert batch.split_batch(2, 4, gpu_memory=80e9) == (2, 4)


@pytest.mark.parametrize("gigabytes", [6.0, 15.8, 42.5, 85.0, 150.1])
@pytest.mark.parametrize("world_size", [1, 2, 3, 4, 8])
def test_the_global_batch_stays_where_it_can_be_shared(
    world_size: int, gigabytes: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    start(monkeypatch, world_size, *[gigabytes] * world_size)
    for per_device in range(1, 9):
        for accumulation in range(1, 9):
            total = per_device * accumulation
            for split, largest in (
                (batch.split_batch, per_device * gigabytes / 15),
                (batch.split_batch_no_larger, per_device),
            ):
                size, steps = split(per_device, accumulation)
                assert total <= size * steps * world_size < total + world_size
                assert size <= max(1, largest)


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


@pytest.mark.parametrize("world_size", [1, 2, 3, 8])
def test_a_fixed_size(world_size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    start(monkeypatch, world_size, 150.1)
    for size in (1, 2, 3, 4):
        taken, steps = batch.split_by_size(size, 2, 4)
        assert taken == size
        assert 8 <= size * steps * world_size < 8 + size * world_size
        taken, steps = batch.split_by_size(size, 1, 1, 4)
        assert taken == size
        assert size * steps * world_size % 4 == 0
        assert 4 <= size * steps * world_size < 4 + math.lcm(size * world_size, 4)


def test_machines_compare_their_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    start(monkeypatch, 4, 150.1)
    monkeypatch.setattr(machines, "gather_object", lambda mine: [*mine, 15.8e9])
    monkeypatch.setattr(batch, "smallest_gpu", machines.smallest_gpu)
    assert batch.split_batch(2, 16) == (2, 4)


def test_one_line_says_it(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    start(monkeypatch, 2, 150.1)
    batch.split_batch(2, 4)
    assert capsys.readouterr() == ("Samples a step: 8 (per-device batch 4 x accumulation 1 x processes 2)\n", "")
    batch.split_completions(1, 4, 4)
    assert capsys.readouterr().out.startswith("Completions a step: 4 (")
    batch.split_by_size(2, 2, 4)
    batch.split_by_size(2, 2, 4, 4)
    assert [line.split(":")[0] for line in capsys.readouterr().out.splitlines()] == [
        "Samples a step",
        "Completions a step",
    ]


def test_a_batch_that_cannot_be_shared_is_told_once(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    start(monkeypatch, 3, 150.1)
    batch.split_batch(2, 4)
    assert capsys.readouterr().err == "A step has 9 samples, not the notebook's 8\n"
    monkeypatch.setattr(batch, "is_main_process", False)
    batch.split_batch(2, 4)
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(("folders", "said"), [(["/a", "/b", "/a"], "/a, /b"), (["/a", "/a"], "")])
def test_folders_of_the_machines(
    folders: list[str], said: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(machines, "gather_object", lambda _: folders)
    machines.compare_folders()
    assert capsys.readouterr() == ("", f"The machines work in different folders: {said}\n" if said else "")
