"""Estimate the GPU memory of a training without gradient checkpointing.

Measured for SFT of Llama, Mistral, Qwen 2 and Qwen 3, 4-bit, 16-bit and with full fine-tuning: in 51 runs never too
low, at most 1.49 times too high (docs/performance.md#memory).
"""

from typing import Any

MEASURED_MODELS = ("llama", "mistral", "qwen2", "qwen3")  # `model_type` in their configs


def bytes_of_a_row(config: Any, tokens: int, value_bytes: int) -> Any:
    """Return the bytes of activations that the backward pass needs for one row; a value has 2 or 4 bytes.

    The factors are measured: docs/performance.md#memory of nb2ddp.
    """
    width = max(config.hidden_size, config.num_attention_heads * (getattr(config, "head_dim", None) or 0))
    return value_bytes * tokens * config.num_hidden_layers * (8.5 * width + 3 * config.intermediate_size)


def bytes_of_gradients_and_optimizer(trained_bytes: int, processes: int) -> float:
    """Return the bytes of gradients (DDP keeps them twice) and Adam's two states, and 0.3 GB for all else."""
    return (4 if processes > 1 else 3) * trained_bytes + 3e8


def rows_that_fit(rows: int, row_bytes: float, other_bytes: float, free: float, total: float) -> int:
    """Return the largest divisor of `rows` whose memory fits and keeps the GPU busy, or 0 if there is none.

    The limits are measured: docs/setup-block.md#gradient-checkpointing of nb2ddp.
    """
    most = 0
    for n in range(1, rows + 1):
        fits = n * row_bytes + other_bytes < 0.85 * free
        pays = n == rows or n * row_bytes >= total / 4  # smaller batches leave the GPU idle
        if rows % n == 0 and fits and pays:
            most = n
    return most
