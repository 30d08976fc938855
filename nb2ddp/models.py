"""Which kind of model a notebook trains, as far as DDP must know."""

from __future__ import annotations

import re
from enum import Enum

import libcst as cst

from nb2ddp.tree import Tree, argument, keyword

#: Calls that load a model; never a tokenizer, processor or config.
_LOADER = re.compile(
    r"(unsloth(\.\w+)*\.Fast\w*(Model|Transformer)"
    r"|(transformers|peft|trl|unsloth)(\.\w+)*\.(Auto\w*Model\w*|\w+(For[A-Z]\w+|LMHeadModel\w*|Model))"
    r"|diffusers(\.\w+)*\.\w+(Pipeline|Model))\.from_pretrained"
)
_NO_WEIGHTS = re.compile(r"\.(PeftModel\w*|\w*(Tokenizer|Processor|Config|FeatureExtractor)\w*)\.from_pretrained$")

_MIXTURE_OF_EXPERTS = re.compile(
    r"moe|mixtral|gpt-?oss|\ba\d+(\.\d+)?b\b|[-_]a\d+(\.\d+)?b\b|deepseek-v[23]|llama-4|olmoe|glm.*(air|flash)"
    r"|qwen3[._]?[56].*(35b|122b|397b)|granite-4.*-h-(tiny|small)|nemotron.*-a\d",
    re.IGNORECASE,
)
_VISION = re.compile(
    r"[-_]vl\b|[-_]vl[-_]|vision|pixtral|llava|gemma-?3n|gemma-?4|gemma-3-(4|12|27)b|ocr|qwen3[._][56]|idefics"
    r"|smolvlm|internvl|mistral-small-3|magistral|ministral-3|muse|diffusion",
    re.IGNORECASE,
)
_AUDIO = re.compile(r"whisper|csm|audio|speech|wav2vec", re.IGNORECASE)
_ENCODER_DECODER = re.compile(r"\bt5|flan|bart\b|pegasus|marian|seq2seq", re.IGNORECASE)


class ModelKind(Enum):
    """What DDP must know of a model: whether every trainable weight gets a gradient in every step."""

    DENSE_TEXT = "dense text"
    VISION = "vision"
    AUDIO = "audio"
    MIXTURE_OF_EXPERTS = "mixture-of-experts"
    ENCODER_DECODER = "encoder-decoder"
    ENCODER = "encoder"
    UNKNOWN = "unknown"


def loads(tree: Tree) -> list[cst.Call]:
    """Live calls that load a model's weights, in order."""
    return [call for call in tree.of(cst.Call) if is_load(tree, call) and tree.is_live(call)]


def is_load(tree: Tree, call: cst.Call) -> bool:
    """True for `X.from_pretrained(...)` where X loads a model."""
    if not isinstance(call.func, cst.Attribute):
        return tree.qualified(call.func) == "transformers.pipeline" and keyword(call, "device_map") is not None
    name = f"{tree.family(call.func.value)}.{call.func.attr.value}"
    return bool(_LOADER.fullmatch(name)) and not _NO_WEIGHTS.search(name)


def has_lora(tree: Tree) -> bool:
    """True where the notebook trains adapters."""
    return any(
        (isinstance(call.func, cst.Attribute) and call.func.attr.value == "get_peft_model")
        or tree.qualified(call.func).endswith(".get_peft_model")
        or keyword(call, "peft_config") is not None
        for call in tree.of(cst.Call)
        if tree.is_live(call)
    )


def model_kind(tree: Tree) -> ModelKind:
    """The kind of the first model the notebook loads, by its loader's class and by its name."""
    for call in loads(tree):
        loader = tree.qualified(call.func)
        passed = argument(call, "model_name", 0) or keyword(call, "pretrained_model_name_or_path")
        name = tree.literal(passed.value) if passed is not None else ...
        auto = keyword(call, "auto_model")
        described = " ".join(
            [loader.rsplit(".", 2)[-2], name if isinstance(name, str) else "", tree.text(auto.value) if auto else ""]
        )
        if _MIXTURE_OF_EXPERTS.search(described):
            return ModelKind.MIXTURE_OF_EXPERTS
        if _AUDIO.search(described):
            return ModelKind.AUDIO
        if _VISION.search(described) or "ImageTextToText" in described:
            return ModelKind.VISION
        if _ENCODER_DECODER.search(described):
            return ModelKind.ENCODER_DECODER
        if "SentenceTransformer" in described or "Classification" in described:
            return ModelKind.ENCODER
        if isinstance(name, str) or "FastLanguageModel" in loader or "ForCausalLM" in described:
            return ModelKind.DENSE_TEXT
        return ModelKind.UNKNOWN
    return ModelKind.UNKNOWN
