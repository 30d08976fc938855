"""The rows that the ranks train on."""

from typing import Any

import torch
from accelerate.utils import broadcast_object_list, gather_object

from nb2ddp.runtime.process import world_size


def share_rows(trainer: Any) -> None:
    """Let all ranks train on the same rows: the main process's, if they prepared different ones."""
    if world_size == 1:
        return
    for name in ("train_dataset", "eval_dataset"):
        rows = getattr(trainer, name, None)
        if isinstance(rows, torch.utils.data.IterableDataset):  # accelerate would give each rank whole files of it
            type(rows).n_shards, trainer.accelerator.dataloader_config.dispatch_batches = 1, False
        setattr(trainer, name, same_rows(rows))
    args, rows = getattr(trainer, "args", None), trainer.train_dataset
    is_filled = not (getattr(args, "dataloader_drop_last", True) or hasattr(args, "num_generations"))
    count = len(rows) if is_filled and hasattr(rows, "__len__") and not isinstance(rows, dict) else 0
    if count and (repeated := -count % (trainer._train_batch_size * world_size)):
        print(f"The end of an epoch repeats {repeated} rows, as {count} do not fill all ranks' batches")


def same_rows(rows: Any) -> Any:
    """Return these rows, or the main process's if a rank has different ones."""
    from datasets.fingerprint import Hasher

    if isinstance(rows, dict):
        return type(rows)({name: same_rows(part) for name, part in rows.items()})
    if not hasattr(rows, "__len__"):
        return rows  # a stream, or None
    table = rows.with_format("arrow") if hasattr(rows, "with_format") else None
    if table is not None:
        found = [Hasher.hash(part.combine_chunks().to_batches()[0].serialize()) for part in table.iter(1000)]
    else:  # a list, or a data set of torch: its length and a sample
        try:
            found = [len(rows), *(Hasher.hash(rows[n]) for n in range(0, len(rows), len(rows) // 100 + 1))]
        except Exception as error:
            print(f"Rows that the processes cannot compare: {error}")
            found = []
    if all(other == found for other in gather_object([found])):
        return rows
    print("The processes prepared different rows: all take the main process's")
    if table is None:
        return broadcast_object_list([rows])[0]
    same, form = type(rows)(broadcast_object_list([table[:].combine_chunks()])[0]), rows.format
    return same.with_format(**form.pop("format_kwargs"), **form)
