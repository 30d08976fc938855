"""Weights for a vLLM server that writes the completions of GRPO."""

from collections.abc import Iterator
from typing import Any

import torch
from trl.generation.vllm_generation import VLLMGeneration


def send_copies_of_weights() -> None:
    """Send the vLLM server copies: TRL 1.15 takes the adapters out of the weights again before it sends the last."""
    weights = VLLMGeneration._iter_named_params

    def copies(generation: Any) -> Iterator[tuple[str, Any]]:
        torch.cuda.synchronize()
        for name, weight in weights(generation):
            yield name, weight.clone()
        torch.cuda.synchronize()

    VLLMGeneration._iter_named_params = copies


def use_one_stream() -> None:
    """Work on torch's default stream: vLLM would take another one, for which bitsandbytes does not wait."""
    if torch.cuda.is_available():
        torch.cuda.set_stream(torch.cuda.default_stream())
