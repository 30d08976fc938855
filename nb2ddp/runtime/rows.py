"""The rows that the processes train on."""

import zlib
from typing import Any

import datasets
import torch
from accelerate.utils import broadcast_object_list, gather_object

from nb2ddp.runtime.process import world_size


def share_rows(trainer: Any) -> None:
    """Let all processes train on the main process's rows, and each on its own part of a stream."""
    for given in (trainer.train_dataset, trainer.eval_dataset):
        for rows in given.values() if isinstance(given, dict) else (given,):
            if isinstance(rows, torch.utils.data.IterableDataset):  # accelerate would share its files, not its rows
                type(rows).n_shards, trainer.accelerator.dataloader_config.dispatch_batches = 1, False
            is_compared = world_size > 1 and isinstance(rows, datasets.Dataset)
            parts = rows.with_format("arrow").iter(1000) if is_compared else ()
            found = [zlib.crc32(part.combine_chunks().to_batches()[0].serialize()) for part in parts]
            if any(other != found for other in gather_object([found])):
                print("The processes prepared different rows: all take the main process's")
                tables = broadcast_object_list([rows.with_format("arrow")[:].combine_chunks()])
                rows._data, rows._indices = datasets.table.InMemoryTable(tables[0]), None


def share_listed_rows(trainer: Any) -> None:
    """Let all processes train on the main process's list or data set of torch, if a sample of its rows differs."""
    for name in ("train_dataset", "eval_dataset"):
        rows, sample = getattr(trainer, name), None
        if world_size > 1 and hasattr(rows, "__len__") and not isinstance(rows, (dict, datasets.Dataset)):
            sample = [len(rows), *(rows[n] for n in range(0, len(rows), len(rows) // 100 + 1))]
        found = datasets.fingerprint.Hasher.hash(sample)
        if any(other != found for other in gather_object([found])):
            print("The processes prepared different rows: all take the main process's")
            setattr(trainer, name, broadcast_object_list([rows])[0])


def count_repeated_rows(trainer: Any) -> None:
    """Print how many rows the processes repeat at the end of an epoch, to fill their last batches."""
    if repeated := -len(trainer.train_dataset) % (trainer._train_batch_size * world_size):
        print(f"Rows that the processes repeat at the end of an epoch: {repeated}")
