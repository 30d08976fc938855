"""Make the real configuration of a model small: the same architecture, two layers, small widths."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

LAYERS, HEADS, HEAD = 2, 4, 32
#: What a field is made, by its name: never larger than it is.
_MOST = (
    (r"(hidden_size|d_model|n_embd|dim|embed_dim|out_hidden_size|projection_dim)", HEADS * HEAD),
    (r"(intermediate_size|\w*ffn_dim|n_inner|intermediate_size_mlp|mlp_dim|mamba_d_ssm)", 2 * HEADS * HEAD),
    (r"(moe_intermediate_size|shared_expert_intermediate_size|expert_\w*size)", 64),
    (r"(num_hidden_layers|num_layers|n_layers?|depth|\w*(en|de)coder_layers)", LAYERS),
    (r"(num_attention_heads|num_heads|n_heads?|\w*coder_attention_heads|linear_num_value_heads)", HEADS),
    (r"(mamba_n_heads)", 2 * HEADS),
    (r"(num_key_value_heads|num_global_key_value_heads|linear_num_key_heads)", 2),
    (r"(head_dim|global_head_dim|linear_(key|value)_head_dim|v_head_dim|qk_\w+_head_dim|mamba_d_head)", HEAD),
    (r"(q_lora_rank|kv_lora_rank|mamba_d_state|mamba_chunk_size)", HEAD),
    (r"(num_experts|num_local_experts|n_routed_experts|moe_num_experts)", 4),
    (r"(num_experts_per_tok|moe_k|top_k_experts)", 2),
    (r"(n_shared_experts|moe_num_shared_experts|first_k_dense_replace|n_group|topk_group|num_nextn_predict_layers)", 1),
    (r"(num_kv_shared_layers)", 0),
    (r"(attn_layer_period)", LAYERS),
    (r"(attn_layer_offset|cross_attention_layers|\w+_(indices|indexes))", LAYERS - 1),
    (r"(hidden_size_per_layer_input|laurel_rank)", 8),
)
#: Words of a configuration that speak of the files of the real model, or of its code.
_OF_THE_REAL = frozenset("quantization_config auto_map _name_or_path unsloth_version transformers_version".split())


def shrunk(about: dict[str, Any]) -> dict[str, Any]:
    """A configuration like this one, for a model that trains on a CPU.

    Args:
        about: a whole configuration, as `to_dict()` gives it.
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
    """A setting of rotary positions, whose lists have a number for every two dimensions of a head."""
    if isinstance(value, dict):
        return {key: _of_rope(key, each) for key, each in value.items()}
    if name == "mrope_section":
        first = HEAD // 8
        return [first, *[(HEAD // 2 - first) // (len(value) - 1)] * (len(value) - 1)]
    return value[: HEAD // 2] if isinstance(value, list) else value


def _kinds(kinds: Sequence[str]) -> list[str]:
    """The kinds of two layers: two different ones where there are such."""
    distinct = [*dict.fromkeys(kinds)][:LAYERS]
    return (distinct * LAYERS)[:LAYERS]
