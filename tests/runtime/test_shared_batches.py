"""Batches that the processes share in equal parts, including batches that are not full."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

pytest.importorskip("accelerate")

from accelerate.data_loader import BatchSamplerShard
from torch.utils.data import BatchSampler

from nb2ddp.runtime import shared_batches


@pytest.mark.parametrize(("world_size", "batch"), [(1, 8), (2, 8), (3, 9), (16, 16)])
def test_a_batch_is_a_multiple_of_the_processes(
    world_size: int, batch: int, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(shared_batches, "world_size", world_size)
    assert shared_batches.share_batches(8) == batch
    output = capfd.readouterr()
    assert f"Samples a batch: {batch} ({batch // world_size} in each process)" in output.out
    assert ("not the notebook's 8" in output.err) == (batch != 8)


@pytest.mark.parametrize(("world_size", "rows"), [(2, 22), (2, 21), (4, 17)])
def test_processes_share_every_batch(world_size: int, rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(BatchSamplerShard, "_iter_with_split", BatchSamplerShard._iter_with_split)
    monkeypatch.setattr(shared_batches, "world_size", world_size)
    arguments = SimpleNamespace(dataloader_drop_last=True)
    assert shared_batches.keep_last_batches(arguments) is arguments
    assert arguments.dataloader_drop_last is False
    whole = BatchSampler(range(rows), batch_size=8, drop_last=False)
    parts = [list(BatchSamplerShard(whole, world_size, n, split_batches=True)) for n in range(world_size)]
    shared = [[row for part in each for row in part] for each in zip(*parts, strict=True)]
    trained = [batch[: len(batch) // world_size * world_size] for batch in whole]
    assert shared == [batch for batch in trained if batch]


def test_one_process_trains_as_the_notebook(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_batches, "world_size", 1)
    before = BatchSamplerShard._iter_with_split
    assert shared_batches.keep_last_batches(SimpleNamespace(dataloader_drop_last=True)).dataloader_drop_last is True
    assert BatchSamplerShard._iter_with_split is before
