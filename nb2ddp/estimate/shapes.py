"""The shape of a model: from its `config.json`, else from known models of its name."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from nb2ddp.estimate import hub
from nb2ddp.estimate.models import Shape, known

_HUB, _SECONDS = "https://huggingface.co", 2.0
#: Suffixes of names that say how a checkpoint was made, not how large it is.
_VARIANT = re.compile(r"-(bnb-4bit|unsloth|instruct|it|pt|base|chat|gguf|bf16|fp8|dynamic)\b|-v?\d{4}\b", re.I)
#: Models for sound, which were not measured.
_SOUND = re.compile(r"whisper|\bcsm\b|speecht5|wav2vec")
_PARAMETERS = re.compile(r"(?<![a-z0-9.])(\d+(?:\.\d+)?)\s?([bm])(?![a-z0-9])", re.I)


class ShapeError(Exception):
    """The size of a model is unknown; the message is one sentence."""


def shape_of(name: str, *, offline: bool = False) -> Shape:
    """Return the shape of a model.

    Args:
        name: its id on the hub, or a folder.
        offline: do not ask the hub, but read its cache.

    Raises:
        ShapeError: neither a `config.json` nor the name gives it, or the model takes sound.
    """
    if _SOUND.search(name.lower()):
        raise ShapeError(f"{name} takes sound; the estimate covers only text and images")
    for source, text in _configs(name, offline):
        try:
            return from_config(json.loads(text), source)
        except (ValueError, KeyError, TypeError):
            continue
    return from_name(name)


def _configs(name: str, offline: bool) -> Iterator[tuple[str, str]]:
    """Yield the source and the text of each `config.json` of a model: in its folder, the hub's cache, the hub."""
    own = Path(name) / "config.json"
    if own.is_file():
        yield str(own), own.read_text(encoding="utf-8")
    folder = hub.cache() / f"models--{name.replace('/', '--')}"
    for path in sorted(folder.glob("snapshots/*/config.json")):
        yield "the hub's cache", path.read_text(encoding="utf-8")
    is_id = re.fullmatch(r"[\w.-]+/[\w.-]+", name)
    if is_id and not offline and not hub.is_offline():
        from urllib.request import urlopen  # imported only here: it takes longer than everything else

        try:
            with urlopen(f"{_HUB}/{name}/raw/main/config.json", timeout=_SECONDS) as answer:
                yield "the hub", answer.read(1_000_000).decode()
        except (OSError, ValueError):
            return


def from_config(config: Mapping[str, Any], source: str) -> Shape:
    """Return the shape in a `config.json`; for a model with towers, its language model's shape and the towers' weights.

    Raises:
        KeyError, TypeError: it does not describe a language model.
    """
    text = config.get("text_config") or config.get("llm_config") or config
    heads = text["num_attention_heads"]
    experts = text.get("num_experts") or text.get("num_local_experts") or text.get("n_routed_experts") or 0
    tower = config.get("vision_config") or config.get("audio_config") or {}
    width = tower.get("embed_dim") or tower.get("hidden_size") or 0
    depth = tower.get("depth") or tower.get("num_hidden_layers") or 0
    return Shape(
        hidden_size=text["hidden_size"],
        intermediate_size=text.get("intermediate_size") or 4 * text["hidden_size"],
        num_hidden_layers=text["num_hidden_layers"],
        num_attention_heads=heads,
        num_key_value_heads=text.get("num_key_value_heads") or heads,
        head_dim=text.get("head_dim") or text["hidden_size"] // heads,
        vocab_size=text["vocab_size"],
        tied=bool(text.get("tie_word_embeddings", config.get("tie_word_embeddings", False))),
        num_experts=experts,
        experts_per_token=text.get("num_experts_per_tok") or text.get("experts_per_token") or (1 if experts else 0),
        expert_size=text.get("moe_intermediate_size") or (text.get("intermediate_size") if experts else 0) or 0,
        other_parameters=12 * depth * width**2,  # attention and a perceptron of four times the width in each layer
        family=str(text.get("model_type") or ""),
        source=source,
        is_encoder="type_vocab_size" in config,
        is_quantized="quantization_config" in config,
    )


def from_name(name: str) -> Shape:
    """Return the shape of known models of this name, else of a dense model with the number of parameters in the name.

    Raises:
        ShapeError: the name is unknown and contains no number of parameters.
    """
    plain = _VARIANT.sub("", name.rsplit("/", 1)[-1]).replace("_", "-").lower()
    shape = next((shape for pattern, shape in known() if pattern.search(plain)), None)
    if shape is not None:
        return shape
    number = _PARAMETERS.search(plain)
    if number is None:
        raise ShapeError(
            f"the size of {name or 'the model'} is unknown: it is in no cache, the Hub was not asked or has no"
            " config.json for it, and its name gives no number of parameters"
        )
    wanted = float(number[1]) * (1e9 if number[2].lower() == "b" else 1e6)
    dense = [shape for _, shape in known() if shape.family == "llama"]
    nearest = min(dense, key=lambda shape: abs(shape.parameters - wanted))
    scale = (wanted - nearest.embedding_parameters) / nearest.linear_parameters
    layers = max(1, round(nearest.num_hidden_layers * max(scale, 0.1)))
    return replace(nearest, num_hidden_layers=layers, family="", source="the number of parameters in its name")
