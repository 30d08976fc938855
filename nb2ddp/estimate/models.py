"""The sizes of the models that notebooks name."""

from __future__ import annotations

import csv
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path


@dataclass(frozen=True)
class Shape:
    """The sizes of a model, named as in the `config.json` of transformers.

    Attributes:
        num_experts: experts of a layer; 0 for a dense model.
        experts_per_token: experts that see a token.
        expert_size: the intermediate size of an expert.
        other_parameters: parameters of towers for images or sound.
        family: transformers' `model_type`, or a name like it.
        source: where the sizes come from, in words.
    """

    hidden_size: int
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    vocab_size: int
    intermediate_size: int = 0
    tied: bool = False
    num_experts: int = 0
    experts_per_token: int = 0
    expert_size: int = 0
    other_parameters: float = 0
    family: str = ""
    source: str = "the table of known models"
    is_encoder: bool = False
    is_quantized: bool = False

    @property
    def linear_parameters(self) -> float:
        """The weights of the layers' linear maps, which are quantized in 4 and 8 bits."""
        heads = self.num_attention_heads + self.num_key_value_heads
        attention = 2 * self.hidden_size * heads * self.head_dim
        gates = 2 if self.is_encoder else 3
        dense = gates * self.hidden_size * self.intermediate_size
        experts = self.num_experts * (3 * self.hidden_size * self.expert_size + self.hidden_size)
        return self.num_hidden_layers * (attention + (experts or dense))

    @property
    def embedding_parameters(self) -> float:
        """The weights of the embeddings and of the head, which no notebook's checkpoint quantizes."""
        return self.vocab_size * self.hidden_size * (1 if self.tied else 2)

    @property
    def parameters(self) -> float:
        """All weights."""
        return self.linear_parameters + self.embedding_parameters + self.other_parameters

    @property
    def active_intermediate_size(self) -> int:
        """The values between the two linear maps of a layer that one token passes through."""
        return self.experts_per_token * self.expert_size or self.intermediate_size

    def lora_parameters(self, rank: int) -> float:
        """Return the weights of adapters of this rank on all linear maps of the layers, except experts."""
        head = self.head_dim * self.num_attention_heads
        pair = self.head_dim * self.num_key_value_heads
        attention = 2 * (self.hidden_size + head) + 2 * (self.hidden_size + pair)
        mlp = 0 if self.num_experts else (2 if self.is_encoder else 3) * (self.hidden_size + self.intermediate_size)
        towers = self.other_parameters / max(1, self.hidden_size)  # about the number of rows of their linear maps
        return rank * (self.num_hidden_layers * (attention + mlp) + towers)


@cache
def known() -> list[tuple[re.Pattern[str], Shape]]:
    """Return patterns of names, most specific first, with the sizes in the `config.json` of such models.

    `8b` in a name does not match `0.8b` or `18b`.
    """
    with Path(__file__).with_suffix(".csv").open(encoding="utf-8") as lines:
        rows = list(csv.DictReader(lines))
    found = []
    for row in rows:
        name = re.sub(r"(\d+(\\\.\d+)?[bm])", r"(?<![\\d.])\1", row.pop("name"))
        sizes = {field: text == "yes" or float(text) for field, text in row.items() if text and field != "family"}
        found.append((re.compile(name), Shape(family=row["family"], **sizes)))  # type: ignore[arg-type]
    return found
