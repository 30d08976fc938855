"""Gradient checkpointing only if memory is short: the notebook needed it on its own, smaller GPU."""

from typing import Any

import torch
from accelerate.utils import gather_object

from nb2ddp.runtime.process import world_size


def skip_checkpointing_if_it_fits(trainer: Any) -> None:
    """Turn gradient checkpointing off, to train 1.3 to 1.5 times as fast, if every GPU has the memory."""
    args, model, config = trainer.args, trainer.model, trainer.model.config
    if torch.cuda.is_available() and config.model_type in ("llama", "mistral", "qwen2", "qwen3"):
        rows = trainer.train_dataset.with_format("arrow")[:]["input_ids"].combine_chunks()
        tokens = args.per_device_train_batch_size * max(rows.value_lengths().to_numpy())  # of the longest batch
        width = max(config.hidden_size, config.num_attention_heads * (getattr(config, "head_dim", None) or 0))
        values = tokens * config.num_hidden_layers * (8.5 * width + 3 * config.intermediate_size)  # bytes as measured
        trained = sum(weight.nbytes for weight in model.parameters() if weight.requires_grad)
        needed = values * (2 if args.fp16 or args.bf16 else model.dtype.itemsize)
        needed += trained * (4 if world_size > 1 else 3) + 3e8  # gradients (DDP copies them), Adam, the rest
        if fits := all(gather_object([needed < 0.85 * torch.cuda.mem_get_info()[0]])):
            args.gradient_checkpointing = model._unsloth_gradient_checkpointing = False  # Unsloth reads the second
        print(f"Gradient checkpointing: {'off' if fits else 'on'} (off needs {needed / 1e9:.1f} GB beside the model)")
