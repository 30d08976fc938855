"""What training without gradient checkpointing keeps in the memory of a GPU. Nothing but numbers is needed for it.

Measured for SFT of Llama, Mistral, Qwen 2 and Qwen 3, 4-bit, 16-bit and with full fine-tuning: in 51 runs never too
low, at most 1.49 times too high (docs/performance.md#memory).
"""

from typing import Any

MEASURED_MODELS = ("llama", "mistral", "qwen2", "qwen3")  # types of models, as their configs name them


def bytes_of_a_row(config: Any, tokens: int, value_bytes: int) -> Any:
    """The activations of one row that the backward pass needs, for values of 2 bytes (half precision) or 4."""
    width = max(config.hidden_size, config.num_attention_heads * (getattr(config, "head_dim", None) or 0))
    return value_bytes * tokens * config.num_hidden_layers * (8.5 * width + 3 * config.intermediate_size)


def bytes_of_training(trained_bytes: int, world_size: int) -> float:
    """Gradients and Adam's two states for the weights that are trained, and 0.3 GB; DDP keeps a copy of gradients."""
    return (4 if world_size > 1 else 3) * trained_bytes + 3e8


def rows_that_fit(rows: int, row_bytes: float, other_bytes: float, free: float, total: float) -> int:
    """The most rows at a time that fit the free memory, of the numbers that divide `rows`; 0 where none does."""
    most = 0
    for n in range(1, rows + 1):
        fits = n * row_bytes + other_bytes < 0.85 * free
        pays = n == rows or n * row_bytes >= total / 4  # fewer rows than that leave the GPU idle
        if rows % n == 0 and fits and pays:
            most = n
    return most
