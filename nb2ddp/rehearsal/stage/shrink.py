"""Make the real configuration of a model small: the same architecture, two layers, small widths."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from .toml import tables

LAYERS, HEAD = 2, 32
_MOST = tables(__file__)["most"]
#: Fields of a configuration that refer to the files of the real model, or to its code.
_OF_THE_REAL = frozenset("quantization_config auto_map _name_or_path unsloth_version transformers_version".split())


def shrunk(about: dict[str, Any]) -> dict[str, Any]:
    """Return a configuration like this one, for a model that trains on a CPU.

    Args:
        about: a complete configuration, as `to_dict()` returns it.
    """
    small = {name: _small(name, value) for name, value in about.items() if name not in _OF_THE_REAL}
    if "head_dim" in small and small["head_dim"] is None:
        small.pop("head_dim")
    if small.get("num_key_value_heads") and about["num_key_value_heads"] == about.get("num_attention_heads"):
        small["num_key_value_heads"] = small["num_attention_heads"]
    layers = about.get("num_hidden_layers")
    for name, value in about.items():
        if isinstance(value, (list, tuple)) and len(value) == layers:
            small[name] = _kinds(value) if name.endswith("_types") else small[name][:LAYERS]
    if small.get("per_layer_config"):
        small["per_layer_config"] = {
            key: value for key, value in about["per_layer_config"].items() if int(key) < LAYERS
        }
    return small


def _small(name: str, value: Any) -> Any:
    if isinstance(value, dict):
        if "model_type" in value:
            return shrunk(value)
        return {key: _of_rope(key, each) for key, each in value.items()} if "rope" in name else value
    if "drop" in name and isinstance(value, float):
        return 0.0
    most = next((most for pattern, most in _MOST if re.fullmatch(pattern, name)), None)
    if isinstance(value, int) and most is not None:
        return min(value, most)
    if isinstance(value, list) and most is not None:  # one for each layer, or numbers of layers
        few = [min(each, most) if isinstance(each, int) else each for each in value]
        return [*dict.fromkeys(few)] if most < LAYERS else few
    return value


def _of_rope(name: str, value: Any) -> Any:
    """Return a setting of rotary positions, made small; its lists have a number for every two dimensions of a head."""
    if isinstance(value, dict):
        return {key: _of_rope(key, each) for key, each in value.items()}
    if name == "mrope_section":
        first = HEAD // 8
        return [first, *[(HEAD // 2 - first) // (len(value) - 1)] * (len(value) - 1)]
    return value[: HEAD // 2] if isinstance(value, list) else value


def _kinds(kinds: Sequence[str]) -> list[str]:
    """Return the kinds of two layers, two different ones if possible."""
    distinct = [*dict.fromkeys(kinds)][:LAYERS]
    return (distinct * LAYERS)[:LAYERS]
