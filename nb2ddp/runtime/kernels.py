"""Avoid a hang of Unsloth under DDP."""

import contextlib
from typing import Any

import torch

from nb2ddp.runtime.process import world_size


def keep_kernel_trial_apart() -> None:
    """Keep Unsloth's test of an attention kernel from hanging under DDP.

    While Unsloth 2026.10.9 compiles a block with gradient checkpointing, it tests the kernel with a backward pass.
    Without saved-tensor hooks of its own, that pass would run the block again and wait forever.
    """
    if world_size == 1 or not torch.cuda.is_available():
        return
    with contextlib.suppress(ImportError, AttributeError):  # other versions have no such test
        from unsloth.utils import hf_packed_attention

        trial = hf_packed_attention._varlen_in_graph_probe

        def try_kernel(*args: Any) -> Any:
            with torch.autograd.graph.saved_tensors_hooks(lambda tensor: tensor, lambda tensor: tensor):
                return trial(*args)

        hf_packed_attention._varlen_in_graph_probe = try_kernel
