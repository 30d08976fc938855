"""Kinds of GPUs, with their memory."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Kind:
    """A kind of GPU.

    Attributes:
        name: as notebooks and people write it.
        sold: the GB that it is sold with.
        memory: bytes that torch reports as `total_memory`; those with a comment were read on such a GPU.
        rounded: GB that a notebook's batch is for: as vendors, torch or Colab round the memory, never above it.
    """

    name: str
    sold: int
    memory: float
    rounded: int


#: From the smallest; of two with one name the first is meant where no memory is said.
KINDS = (
    Kind("RTX 3060", 12, 12.6e9, 12),
    Kind("T4", 16, 15.8e9, 15),  # 15,835,660,288
    Kind("V100", 16, 16.9e9, 16),
    Kind("RTX 4080", 16, 16.9e9, 16),
    Kind("P100", 16, 17.1e9, 16),
    Kind("L4", 24, 23.7e9, 23),
    Kind("A10G", 24, 23.8e9, 22),
    Kind("RTX 3090", 24, 25.3e9, 24),
    Kind("RTX 4090", 24, 25.3e9, 24),
    Kind("RTX 5090", 32, 33.7e9, 32),
    Kind("A100", 40, 42.3e9, 40),
    Kind("A40", 48, 47.7e9, 44),
    Kind("L40S", 48, 47.7e9, 44),
    Kind("A6000", 48, 50.9e9, 48),
    Kind("H100", 80, 85.0e9, 80),  # 85,017,493,504
    Kind("A100", 80, 85.1e9, 80),
    Kind("RTX PRO 6000", 96, 101.9e9, 95),
    Kind("G4", 96, 101.9e9, 95),  # Colab's name for the RTX PRO 6000
    Kind("GB10", 128, 128.5e9, 120),
    Kind("DGX Spark", 128, 128.5e9, 120),
    Kind("H200", 141, 150.1e9, 140),  # 150,109,880,320
    Kind("B200", 180, 191.5e9, 180),
    Kind("MI300X", 192, 205.8e9, 192),
)
