"""Gradient checkpointing only if memory is short: the notebook needed it on its own, smaller GPU."""

from typing import Any

import pyarrow.compute
import torch

from nb2ddp.runtime.batch import per_device_batches
from nb2ddp.runtime.memory import MEASURED_MODELS, bytes_of_a_row, bytes_of_gradients_and_optimizer, rows_that_fit
from nb2ddp.runtime.process import world_size


def skip_checkpointing_if_it_fits(trainer: Any) -> None:
    """Train without gradient checkpointing if the GPU has the memory, with a smaller per-device batch if necessary."""
    args, model = trainer.args, trainer.model
    if not torch.cuda.is_available() or model.config.model_type not in MEASURED_MODELS:
        return  # the memory of other models was not measured
    rows_of_tokens = trainer.train_dataset.select_columns("input_ids").with_format("arrow")[:]["input_ids"]
    longest = pyarrow.compute.max(pyarrow.compute.list_value_length(rows_of_tokens)).as_py()  # tokens
    row_bytes = bytes_of_a_row(model.config, longest, 2 if args.fp16 or args.bf16 else model.dtype.itemsize)
    trained_bytes = sum(weight.nbytes for weight in model.parameters() if weight.requires_grad)
    other_bytes = bytes_of_gradients_and_optimizer(trained_bytes, world_size)
    rows = trainer._train_batch_size
    own = torch.tensor(rows_that_fit(rows, row_bytes, other_bytes, *torch.cuda.mem_get_info()), device=args.device)
    fitting = int(trainer.accelerator.gather(own).min())  # the same number on all ranks
    needed = ((fitting or rows) * row_bytes + other_bytes) / 1e9
    state = "off" if fitting else "on"
    print(f"Gradient checkpointing is {state}: without it {fitting or rows} rows need {needed:.1f} GB beside the model")
    if fitting:
        args.gradient_checkpointing = False
        model._unsloth_gradient_checkpointing = False  # Unsloth reads this one
    if fitting and fitting < rows:
        args.gradient_accumulation_steps *= rows // fitting
        args.per_device_train_batch_size = fitting
        trainer._train_batch_size = fitting  # train() reads both
        per_device_batches.append(fitting)
        print(f"So the split is: per-device batch {fitting} x accumulation {args.gradient_accumulation_steps}")
