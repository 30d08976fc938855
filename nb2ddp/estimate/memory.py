"""The memory that a training needs on each GPU, in bytes. docs/estimate.md compares it with measured runs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from nb2ddp.estimate.models import Shape

if TYPE_CHECKING:
    from nb2ddp.estimate.trainings import Training

#: Bytes of a weight of the linear maps; bitsandbytes keeps a scale for each 64 weights of 4 bits.
_WEIGHT = {"4bit": 0.52, "8bit": 1.01, "16bit": 2.0, "32bit": 4.0, "full": 2.0}
#: With gradient checkpointing one layer at a time keeps its activations, and their gradients.
_CHECKPOINTED = 2
#: Unsloth's kernels for mixtures of experts sort the tokens of a batch: measured with one small model.
_EXPERTS = 1.44e9
#: Encoders keep some values in 32 bits: measured with one small model.
_ENCODER = 1.4
#: Bytes that a training needs in addition to activations, gradients (which DDP keeps twice) and Adam's two states.
_REST = 3e8
#: Bytes that CUDA and torch take in addition to torch's allocations.
CONTEXT = 0.7e9


@dataclass(frozen=True)
class Need:
    """The memory that one process needs, in bytes.

    Attributes:
        weights: the model's weights, including adapters.
        training: gradients and the optimizer's states.
        row: the activations of one row, as the training keeps them.
    """

    weights: float
    training: float
    row: float

    def peak(self, rows: int) -> float:
        """Return the peak of torch's allocations in bytes, with `rows` as the per-device batch."""
        return self.weights + self.training + rows * self.row


def trained_bytes(training: Training, shape: Shape) -> int:
    """Return the bytes of trained weights: adapters in 32 bits, or all weights in 16."""
    if training.precision == "full":
        return int(shape.parameters * 2)
    whole = shape.embedding_parameters if training.trains_embeddings else 0
    return int(4 * (shape.lora_parameters(training.rank) + whole))


def weight_bytes(training: Training, shape: Shape) -> float:
    """Return the bytes of the model's weights, including adapters."""
    precision = "4bit" if shape.is_quantized and training.precision == "16bit" else training.precision
    others = shape.embedding_parameters + shape.other_parameters  # neither is quantized
    base = shape.linear_parameters * _WEIGHT[precision] + others * (4 if precision == "32bit" else 2)
    return base + (0 if precision == "full" else trained_bytes(training, shape))


def values_of_a_token(shape: Shape) -> float:
    """Return the values that the backward pass of one token needs, as `skip_checkpointing_if_it_fits` counts them."""
    width = max(shape.hidden_size, shape.num_attention_heads * (shape.head_dim or 0))
    return shape.num_hidden_layers * (8.5 * width + 3 * shape.active_intermediate_size)


def need(training: Training, shape: Shape, *, checkpointing: bool, processes: int) -> Need:
    """Return the memory that a training needs on each of its GPUs.

    Args:
        training: what is trained.
        shape: the model's sizes.
        checkpointing: layers are computed again in the backward pass.
        processes: number of processes; DDP keeps a copy of the gradients.
    """
    value_bytes = 4 if training.precision == "32bit" else 2
    row = value_bytes * training.tokens * training.rows_of_one * values_of_a_token(shape)
    kept = (4 if processes > 1 else 3) * trained_bytes(training, shape) + _REST
    if checkpointing:
        row = row / shape.num_hidden_layers * _CHECKPOINTED
    if shape.is_encoder:
        row *= _ENCODER
    if shape.num_experts:
        kept += _EXPERTS
    return Need(weight_bytes(training, shape), kept, row)
