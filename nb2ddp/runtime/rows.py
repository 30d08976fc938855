"""The rows that the processes train on."""

import pickle
import sys
import zlib
from typing import Any

import datasets
import torch
from accelerate.utils import broadcast_object_list, gather_object

from nb2ddp.runtime.process import world_size


def share_rows(trainer: Any) -> None:
    """Let all processes train on the main process's rows if they prepared different ones."""
    for given in (trainer.train_dataset, trainer.eval_dataset):
        for rows in given.values() if isinstance(given, dict) else (given,):
            checksums = []
            if world_size > 1 and isinstance(rows, datasets.Dataset):
                parts = rows.with_format("arrow").iter(1000)
                checksums = [zlib.crc32(part.combine_chunks().to_batches()[0].serialize()) for part in parts]
            if any(other != checksums for other in gather_object([checksums])):
                print("The processes prepared different rows: all take the main process's")
                table = broadcast_object_list([rows.with_format("arrow")[:].combine_chunks()])[0]
                rows._data, rows._indices = datasets.table.InMemoryTable(table), None  # keeps the data set's transforms


def share_listed_rows(trainer: Any) -> None:
    """Give all processes the main process's list or torch data set if theirs differ in a sample of the rows."""
    for name in ("train_dataset", "eval_dataset"):
        rows, sample = getattr(trainer, name), None
        if world_size > 1 and hasattr(rows, "__len__") and not isinstance(rows, (dict, datasets.Dataset)):
            sample = [len(rows), *(rows[n] for n in range(0, len(rows), len(rows) // 100 + 1))]
        checksum = datasets.fingerprint.Hasher.hash(sample)
        if any(other != checksum for other in gather_object([checksum])):
            print("The processes prepared different rows: all take the main process's")
            try:
                setattr(trainer, name, broadcast_object_list([rows])[0])
            except (AttributeError, TypeError, pickle.PicklingError) as error:
                sys.exit(f"The main process cannot send its rows. Prepare the same rows in all processes: {error}")


def share_streams(trainer: Any) -> None:
    """Let the processes take turns at the rows of a stream; accelerate would give each process whole files."""
    for given in (trainer.train_dataset, trainer.eval_dataset):
        for rows in given.values() if isinstance(given, dict) else (given,):
            if isinstance(rows, torch.utils.data.IterableDataset):
                type(rows).n_shards = 1  # accelerate then counts one file
                trainer.accelerator.dataloader_config.dispatch_batches = False  # each process reads the rows itself
