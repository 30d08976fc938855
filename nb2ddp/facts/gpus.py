"""Kinds of GPUs, with their memory; `gpus.toml` explains its columns."""

from __future__ import annotations

from dataclasses import dataclass

from nb2ddp import toml


@dataclass(frozen=True)
class Kind:
    """A row of `gpus.toml`."""

    name: str
    sold: int
    memory: float
    rounded: int


#: From the smallest; of two with one name the first is meant where no memory is said.
KINDS = tuple(Kind(**row) for row in toml.tables(__file__)["kinds"])
