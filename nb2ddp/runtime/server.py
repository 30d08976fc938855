"""Send weights to a vLLM server that generates the completions of GRPO."""

from collections.abc import Iterator
from typing import Any

import torch
from trl.generation.vllm_generation import VLLMGeneration


def send_copies_of_weights() -> None:
    """Send copies of the weights to the vLLM server: TRL 1.15 unmerges the adapters before the last ones are sent."""
    weights = VLLMGeneration._iter_named_params

    def copies(generation: Any) -> Iterator[tuple[str, Any]]:
        torch.cuda.synchronize()
        for name, weight in weights(generation):
            yield name, weight.clone()
        torch.cuda.synchronize()

    VLLMGeneration._iter_named_params = copies


def use_one_stream() -> None:
    """Use torch's default stream: vLLM would select another one, and bitsandbytes does not wait for that."""
    if torch.cuda.is_available():
        torch.cuda.set_stream(torch.cuda.default_stream())
