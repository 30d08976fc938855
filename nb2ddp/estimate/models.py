"""The sizes of the models that notebooks name."""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True)
class Shape:
    """The sizes of a model, named as in the `config.json` of transformers.

    Attributes:
        num_experts: experts of a layer; 0 for a dense model.
        experts_per_token: experts that see a token.
        expert_size: the intermediate size of an expert.
        other_parameters: those of towers for images or sound.
        family: transformers' `model_type`, or a name like it.
        source: where the sizes come from, in words.
    """

    hidden_size: int
    intermediate_size: int
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    vocab_size: int
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
        """The weights of the embeddings and of the head, which are quantized in no notebook's checkpoint."""
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
        """The weights of adapters of this rank on all linear maps of the layers, experts left out."""
        head = self.head_dim * self.num_attention_heads
        pair = self.head_dim * self.num_key_value_heads
        attention = 2 * (self.hidden_size + head) + 2 * (self.hidden_size + pair)
        mlp = 0 if self.num_experts else (2 if self.is_encoder else 3) * (self.hidden_size + self.intermediate_size)
        towers = self.other_parameters / max(1, self.hidden_size)  # about what their linear maps have of rows
        return rank * (self.num_hidden_layers * (attention + mlp) + towers)


def _dense(family: str, *sizes: int, tied: bool = False, towers: float = 0, is_encoder: bool = False) -> Shape:
    """A dense model: hidden and intermediate size, layers, heads, heads of keys, their size, words."""
    hidden, intermediate, layers, heads, pairs, dim, vocab = sizes
    return Shape(
        hidden, intermediate, layers, heads, pairs, dim, vocab, tied,
        other_parameters=towers, family=family, is_encoder=is_encoder,
    )  # fmt: skip


def _experts(family: str, h: int, layers: int, heads: int, pairs: int, dim: int, vocab: int, *of: int) -> Shape:
    number, per_token, size = of
    return Shape(h, 0, layers, heads, pairs, dim, vocab, False, number, per_token, size, family=family)


_LLAMA3, _QWEN, _GEMMA3 = 128256, 151936, 262144
#: Names, most special first, and sizes from the `config.json` of the models that they stand for.
_SIZES: tuple[tuple[str, Shape], ...] = (
    ("tinyllama", _dense("llama", 2048, 5632, 22, 32, 4, 64, 32000)),
    (r"llama-3\.2-1b", _dense("llama", 2048, 8192, 16, 32, 8, 64, _LLAMA3, tied=True)),
    (r"llama-3\.2-3b", _dense("llama", 3072, 8192, 28, 24, 8, 128, _LLAMA3, tied=True)),
    (r"llama-3\.2-11b", _dense("mllama", 4096, 14336, 40, 32, 8, 128, _LLAMA3, towers=9e8)),
    (r"llama-3.*70b", _dense("llama", 8192, 28672, 80, 64, 8, 128, _LLAMA3)),
    (r"(llama-3|hermes-3).*8b|deepseek-r1.*llama-8b", _dense("llama", 4096, 14336, 32, 32, 8, 128, _LLAMA3)),
    (r"(code)?llama-2?-?7b", _dense("llama", 4096, 11008, 32, 32, 32, 128, 32000)),
    (r"(code)?llama-2?-?13b", _dense("llama", 5120, 13824, 40, 40, 40, 128, 32000)),
    (r"(code)?llama-2?-?34b", _dense("llama", 8192, 22016, 48, 64, 8, 128, 32000)),
    (r"mistral-nemo", _dense("mistral", 5120, 14336, 40, 32, 8, 128, 131072)),
    (r"(mistral-small|magistral|devstral).*24b|magistral|mistral-small-3",
     _dense("mistral", 5120, 32768, 40, 32, 8, 128, 131072, towers=4.4e8)),
    (r"mistral-small", _dense("mistral", 6144, 16384, 56, 48, 8, 128, 32768)),
    (r"pixtral", _dense("mistral", 5120, 14336, 40, 32, 8, 128, 131072, towers=4.4e8)),
    (r"mistral.*7b|zephyr|openhermes.*7b|starling", _dense("mistral", 4096, 14336, 32, 32, 8, 128, 32768)),
    (r"qwen3-30b-a3b|qwen3-coder-30b", _experts("qwen3_moe", 2048, 48, 32, 4, 128, _QWEN, 128, 8, 768)),
    (r"qwen3-vl-2b", _dense("qwen3_vl", 2048, 6144, 28, 16, 8, 128, _QWEN, tied=True, towers=4.1e8)),
    (r"qwen3-vl-4b", _dense("qwen3_vl", 2560, 9728, 36, 32, 8, 128, _QWEN, tied=True, towers=4.2e8)),
    (r"qwen3-vl-8b", _dense("qwen3_vl", 4096, 12288, 36, 32, 8, 128, _QWEN, towers=5.8e8)),
    (r"qwen3.*0\.6b", _dense("qwen3", 1024, 3072, 28, 16, 8, 128, _QWEN, tied=True)),
    (r"qwen3.*1\.7b", _dense("qwen3", 2048, 6144, 28, 16, 8, 128, _QWEN, tied=True)),
    (r"qwen3.*4b", _dense("qwen3", 2560, 9728, 36, 32, 8, 128, _QWEN, tied=True)),
    (r"qwen3.*8b", _dense("qwen3", 4096, 12288, 36, 32, 8, 128, _QWEN)),
    (r"qwen3.*14b", _dense("qwen3", 5120, 17408, 40, 40, 8, 128, _QWEN)),
    (r"qwen3.*32b", _dense("qwen3", 5120, 25600, 64, 64, 8, 128, _QWEN)),
    (r"qwen2(\.5)?-vl-2b", _dense("qwen2_vl", 1536, 8960, 28, 12, 2, 128, _QWEN, tied=True, towers=6.7e8)),
    (r"qwen2(\.5)?-vl-3b", _dense("qwen2_vl", 2048, 11008, 36, 16, 2, 128, _QWEN, tied=True, towers=6.7e8)),
    (r"qwen2(\.5)?-vl-7b", _dense("qwen2_vl", 3584, 18944, 28, 28, 4, 128, 152064, towers=6.8e8)),
    (r"qwen2(\.5)?.*0\.5b", _dense("qwen2", 896, 4864, 24, 14, 2, 64, _QWEN, tied=True)),
    (r"qwen2(\.5)?.*1\.5b", _dense("qwen2", 1536, 8960, 28, 12, 2, 128, _QWEN, tied=True)),
    (r"qwen2(\.5)?.*3b", _dense("qwen2", 2048, 11008, 36, 16, 2, 128, _QWEN, tied=True)),
    (r"qwen2(\.5)?.*7b", _dense("qwen2", 3584, 18944, 28, 28, 4, 128, 152064)),
    (r"qwen2(\.5)?.*14b", _dense("qwen2", 5120, 13824, 48, 40, 8, 128, 152064)),
    (r"qwen2(\.5)?.*32b", _dense("qwen2", 5120, 27648, 64, 40, 8, 128, 152064)),
    (r"qwen2(\.5)?.*72b", _dense("qwen2", 8192, 29568, 80, 64, 8, 128, 152064)),
    (r"codegemma.*7b|gemma-7b", _dense("gemma", 3072, 24576, 28, 16, 16, 256, 256000, tied=True)),
    (r"gemma-2b", _dense("gemma", 2048, 16384, 18, 8, 1, 256, 256000, tied=True)),
    (r"gemma-2-2b", _dense("gemma2", 2304, 9216, 26, 8, 4, 256, 256000, tied=True)),
    (r"gemma-2-9b", _dense("gemma2", 3584, 14336, 42, 16, 8, 256, 256000, tied=True)),
    (r"gemma-2-27b", _dense("gemma2", 4608, 36864, 46, 32, 16, 128, 256000, tied=True)),
    (r"(function)?gemma-3?.*270m", _dense("gemma3_text", 640, 2048, 18, 4, 1, 256, _GEMMA3, tied=True)),
    (r"gemma-3-1b", _dense("gemma3_text", 1152, 6912, 26, 4, 1, 256, _GEMMA3, tied=True)),
    (r"gemma-3-4b|medgemma-4b", _dense("gemma3", 2560, 10240, 34, 8, 4, 256, _GEMMA3, tied=True, towers=4.2e8)),
    (r"gemma-3-12b", _dense("gemma3", 3840, 15360, 48, 16, 8, 256, _GEMMA3, tied=True, towers=4.2e8)),
    (r"gemma-3-27b", _dense("gemma3", 5376, 21504, 62, 32, 16, 128, _GEMMA3, tied=True, towers=4.2e8)),
    (r"gemma-3n-e2b", _dense("gemma3n", 2048, 8192, 30, 8, 2, 256, _GEMMA3, tied=True, towers=3e9)),
    (r"gemma-3n-e4b", _dense("gemma3n", 2048, 16384, 35, 8, 2, 256, _GEMMA3, tied=True, towers=4e9)),
    (r"gemma-4-e2b", _dense("gemma4", 1536, 6144, 35, 8, 1, 256, _GEMMA3, tied=True, towers=3e9)),
    (r"gemma-4-e4b", _dense("gemma4", 2560, 10240, 42, 8, 2, 256, _GEMMA3, tied=True, towers=4e9)),
    (r"phi-?3\.?5?.*(mini|3\.8b)", _dense("llama", 3072, 8192, 32, 32, 32, 96, 32064)),
    (r"phi-?3.*medium", _dense("llama", 5120, 17920, 40, 40, 10, 128, 32064)),
    (r"phi-?4-mini", _dense("phi3", 3072, 8192, 32, 24, 8, 128, 200064, tied=True)),
    (r"phi-?4-multimodal", _dense("phi4_multimodal", 3072, 8192, 32, 24, 8, 128, 200064, tied=True, towers=1.8e9)),
    (r"phi-?4", _dense("llama", 5120, 17920, 40, 40, 10, 128, 100352)),
    (r"gpt-?oss-120b", _experts("gpt_oss", 2880, 36, 64, 8, 64, 201088, 128, 4, 2880)),
    (r"gpt-?oss-20b", _experts("gpt_oss", 2880, 24, 64, 8, 64, 201088, 32, 4, 2880)),
    (r"smollm2?-135m", _dense("llama", 576, 1536, 30, 9, 3, 64, 49152, tied=True)),
    (r"smollm2?-360m", _dense("llama", 960, 2560, 32, 15, 5, 64, 49152, tied=True)),
    (r"smollm2?-1\.7b", _dense("llama", 2048, 8192, 24, 32, 32, 64, 49152, tied=True)),
    (r"orpheus", _dense("llama", 3072, 8192, 28, 24, 8, 128, 156940, tied=True)),
    (r"minilm-l6", _dense("bert", 384, 1536, 6, 12, 12, 32, 30522, tied=True, is_encoder=True)),
    (r"(bge|e5|gte).*small|minilm-l12", _dense("bert", 384, 1536, 12, 12, 12, 32, 30522, tied=True, is_encoder=True)),
    (r"(bge|e5|gte|bert).*base", _dense("bert", 768, 3072, 12, 12, 12, 64, 30522, tied=True, is_encoder=True)),
    (r"(bge|e5|gte|bert).*large|bge-m3", _dense("bert", 1024, 4096, 24, 16, 16, 64, 50000, tied=True, is_encoder=True)),
)  # fmt: skip


#: Patterns of names with the shapes that they stand for; `8b` is no part of `0.8b` or `18b`.
KNOWN = tuple((re.compile(re.sub(r"(\d+(\\\.\d+)?[bm])", r"(?<![\\d.])\1", name)), shape) for name, shape in _SIZES)
