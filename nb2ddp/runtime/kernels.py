"""A hang of Unsloth's under DDP."""

import contextlib
from typing import Any

import torch

from nb2ddp.runtime.process import world_size


def keep_kernel_trial_apart() -> None:
    """Give the trial of an attention kernel hooks of its own on saved tensors.

    Unsloth 2026.10.9 tries it, backward pass included, while it compiles a checkpointed block. Under DDP that pass
    would run the block again, and wait for ever.
    """
    if world_size == 1 or not torch.cuda.is_available():
        return
    with contextlib.suppress(ImportError, AttributeError):  # other versions have no such trial
        from unsloth.utils import hf_packed_attention

        trial = hf_packed_attention._varlen_in_graph_probe

        def try_kernel(*args: Any) -> Any:
            with torch.autograd.graph.saved_tensors_hooks(lambda tensor: tensor, lambda tensor: tensor):
                return trial(*args)

        hf_packed_attention._varlen_in_graph_probe = try_kernel
