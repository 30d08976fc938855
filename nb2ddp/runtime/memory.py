"""Estimate the GPU memory of a training without gradient checkpointing.

Measured for SFT of Llama, Mistral, Qwen 2 and Qwen 3, 4-bit, 16-bit and with full fine-tuning: in 51 runs never too
low, at most 1.49 times too high (docs/performance.md#memory).
"""

from typing import Any

MEASURED_MODELS = ("llama", "mistral", "qwen2", "qwen3")  # `model_type` in their configs


def bytes_without_checkpointing(config: Any, tokens: int, value_bytes: int, trained_bytes: int, processes: int) -> Any:
    """Return the bytes of activations of a batch, gradients (DDP keeps them twice) and Adam's states, as measured."""
    width = max(config.hidden_size, config.num_attention_heads * (getattr(config, "head_dim", None) or 0))
    activations = value_bytes * tokens * config.num_hidden_layers * (8.5 * width + 3 * config.intermediate_size)
    return activations + (4 if processes > 1 else 3) * trained_bytes + 3e8  # 0.3 GB for all else
