"""Small models under any id of the hub: the family that the id names, two layers, random weights of one seed."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from .shrink import HEAD, shrunk

if TYPE_CHECKING:
    from transformers import PretrainedConfig, PreTrainedTokenizerFast

# The text of a message, whether it is given as a string or as a list of parts.
_CONTENT = (
    "{% if message['content'] is string %}{{ message['content'] }}{% elif message['content'] %}"
    "{% for part in message['content'] %}{{ part['text'] if part['text'] else '' }}{% endfor %}{% endif %}"
)


def chat_template(before: str, after: str, answers: str = "assistant") -> str:
    """Each message between `before` and `after`, with its role, or `answers` for the assistant's, in place of ROLE."""
    role = f"{{{{ message['role'].replace('assistant', '{answers}') }}}}"
    return (
        "{% for message in messages %}" + before.replace("ROLE", role) + _CONTENT + after + "{% endfor %}"
        "{% if add_generation_prompt %}" + before.replace("ROLE", answers) + "{% endif %}"
    )


CHATML = chat_template("<|im_start|>ROLE\n", "<|im_end|>\n")
LLAMA3 = chat_template("<|start_header_id|>ROLE<|end_header_id|>\n\n", "<|eot_id|>")
GEMMA = chat_template("<start_of_turn>ROLE\n", "<end_of_turn>\n", "model")
GEMMA4 = chat_template("<|turn>ROLE\n", "<turn|>\n", "model")
GRANITE = chat_template("<|start_of_role|>ROLE<|end_of_role|>", "<|end_of_text|>\n")
HARMONY = chat_template("<|start|>ROLE<|message|>", "<|end|>", "assistant<|channel|>final")
MUSE = chat_template("<|start|>ROLE<|message|>", "<|end|>", "assistant to=user")
MISTRAL = (
    "{% for message in messages %}{% if message['role'] == 'user' %}[INST]" + _CONTENT + "[/INST]"
    "{% else %}" + _CONTENT + "</s>{% endif %}{% endfor %}"
)
ERNIE = (
    "{% for message in messages %}{% if message['role'] == 'user' %}User: {% else %}Assistant: {% endif %}"
    + _CONTENT
    + "{{ '\\n' }}{% endfor %}{% if add_generation_prompt %}Assistant: {% endif %}"
)


class Model(NamedTuple):
    """A family of transformers, the tokens that begin and end a text, its chats, and further settings."""

    family: str
    begin: str | None
    end: str
    chat: str = CHATML
    settings: dict[str, Any] | None = None


VOCABULARY = 512  # more than the tokenizer has, as in most models
_EXPERTS = {"enable_moe_block": True, "num_experts": 4, "top_k_experts": 2, "moe_intermediate_size": 64}
_EXPERTS |= {"hidden_size_per_layer_input": 0}
_LLAMA = Model("llama", "<|begin_of_text|>", "<|eot_id|>", LLAMA3)

#: The family by what an id says, the first that fits; of one that sees, that of its text (`seeing`).
FAMILIES = (
    (r"whisper", Model("whisper", "<s>", "</s>", settings={"decoder_start_token_id": 0})),
    (r"modernbert", Model("modernbert", "<s>", "</s>")),
    (r"minilm|bert|bge|e5-|gte-|mpnet", Model("bert", "<s>", "</s>")),
    (r"muse", Model("llama", "<s>", "<|end|>", MUSE)),
    (r"gpt-?oss", Model("gpt_oss", None, "<|end|>", HARMONY)),
    (r"qwen-?3\.[56].*(\da\d|moe)", Model("qwen3_5_moe_text", None, "<|im_end|>")),
    (r"qwen-?3\.[56]", Model("qwen3_5_text", None, "<|im_end|>")),
    (r"qwen-?_?3.*(moe|-a\d+b)", Model("qwen3_moe", None, "<|im_end|>")),
    (r"qwen-?3|qwen_3", Model("qwen3", None, "<|im_end|>")),
    (r"qwen|qwq|kaira|smollm|internvl", Model("qwen2", None, "<|im_end|>")),
    (r"gemma-?4.*a\d+b", Model("gemma4_text", "<bos>", "<turn|>", GEMMA4, _EXPERTS)),
    (r"gemma-?4|diffusiongemma", Model("gemma4_text", "<bos>", "<turn|>", GEMMA4)),
    (r"gemma-?3n", Model("gemma3n_text", "<bos>", "<end_of_turn>", GEMMA)),
    (r"gemma-?3|functiongemma", Model("gemma3_text", "<bos>", "<end_of_turn>", GEMMA)),
    (r"gemma-?2", Model("gemma2", "<bos>", "<eos>", GEMMA)),
    (r"gemma", Model("gemma", "<bos>", "<eos>", GEMMA)),
    (r"falcon-?h1", Model("falcon_h1", "<|begin_of_text|>", "<|im_end|>", settings={"mamba_d_head": HEAD})),
    (r"lfm", Model("lfm2", "<|startoftext|>", "<|im_end|>", settings={"layer_types": ["conv", "full_attention"]})),
    (r"granite", Model("granite", None, "<|end_of_text|>", GRANITE)),
    (r"ernie.*a\d+b", Model("ernie4_5_moe", "<s>", "</s>", ERNIE)),
    (r"paddle", Model("llama", "<s>", "</s>", ERNIE)),
    (r"phi", Model("phi3", "<s>", "<|endoftext|>")),
    (r"zephyr|mistral|mixtral|magistral|pixtral|ministral|devstral", Model("mistral", "<s>", "</s>", MISTRAL)),
)
ENCODERS = frozenset({"bert", "modernbert"})
SPECIAL_TOKENS = [
    *("<unk>", "<pad>", "<s>", "</s>", "<bos>", "<eos>", "<start_of_turn>", "<end_of_turn>", "<|turn>"),
    *("<turn|>", "<|begin_of_text|>", "<|end_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"),
    *("<|im_start|>", "<|im_end|>", "<|endoftext|>", "<|startoftext|>", "<|end|>", "<|start|>", "<|message|>"),
    *("<|channel|>", "<|start_of_role|>", "<|end_of_role|>", "<|user|>", "<|assistant|>", "<|system|>"),
    *("[INST]", "[/INST]", "<think>", "</think>", "<mask>"),
]


def model_of(name: str) -> Model:
    """The kind of model that an id of the hub names; a Llama where it names none."""
    return next((model for pattern, model in FAMILIES if re.search(pattern, name.lower())), _LLAMA)


def tokenizer(model: Model, named: dict[str, str] | None = None) -> PreTrainedTokenizerFast:
    """A tokenizer of single bytes, without merges, and the special tokens; `named` are further ones with a name."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    core = Tokenizer(models.BPE(vocab={token: i for i, token in enumerate(alphabet)}, merges=[]))
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    core.decoder = decoders.ByteLevel()
    core.add_special_tokens([*SPECIAL_TOKENS, *dict.fromkeys((named or {}).values())])
    return PreTrainedTokenizerFast(
        tokenizer_object=core,
        bos_token=model.begin,
        eos_token=model.end,
        pad_token="<pad>",
        unk_token="<unk>",
        mask_token="<mask>",
        model_input_names=["input_ids", "attention_mask"],  # transformers 4 adds token_type_ids
        model_max_length=32768,
        chat_template=model.chat,
        extra_special_tokens=named or {},
    )


def config(model: Model, words: PreTrainedTokenizerFast) -> PretrainedConfig:
    """The family's usual configuration, made small."""
    from transformers import AutoConfig

    usual = AutoConfig.for_model(model.family)
    ids = {f"{name}_token_id": getattr(words, f"{name}_token_id") for name in ("bos", "eos", "pad")}
    settings = shrunk(usual.to_dict()) | ids | {"vocab_size": VOCABULARY}
    if "vocab_size_per_layer_input" in settings:
        settings["vocab_size_per_layer_input"] = VOCABULARY
    if model.family not in ENCODERS:
        settings |= {"max_position_embeddings": 32768, "tie_word_embeddings": False}
    return type(usual).from_dict(settings | (model.settings or {}))


def build_model(name: str, folder: Path) -> None:
    """Make the model that stands for `name` in `folder`."""
    import torch
    import transformers

    about = model_of(name)
    torch.manual_seed(0)
    words = tokenizer(about)
    settings = config(about, words)
    if about.family in ENCODERS:
        model = transformers.AutoModelForMaskedLM.from_config(settings)
        describe_encoder(folder)
    elif about.family == "whisper":
        model = transformers.AutoModelForSpeechSeq2Seq.from_config(settings, dtype=torch.bfloat16)
        transformers.WhisperFeatureExtractor().save_pretrained(folder)
    else:
        model = transformers.AutoModelForCausalLM.from_config(settings, dtype=torch.bfloat16)
    model.save_pretrained(folder)
    words.save_pretrained(folder)
    if re.search("embed", name.lower()):
        describe_encoder(folder)


def describe_encoder(folder: Path) -> None:
    """Write what sentence-transformers reads: the transformer itself, and the mean of its tokens."""
    import json

    (folder / "1_Pooling").mkdir(parents=True, exist_ok=True)
    modules = [("", "Transformer"), ("1_Pooling", "Pooling")]
    described = [
        {"idx": i, "name": str(i), "path": path, "type": f"sentence_transformers.models.{kind}"}
        for i, (path, kind) in enumerate(modules)
    ]
    (folder / "modules.json").write_text(json.dumps(described))
    pooling = {"word_embedding_dimension": 128, "pooling_mode_mean_tokens": True}
    (folder / "1_Pooling" / "config.json").write_text(json.dumps(pooling))
    (folder / "sentence_bert_config.json").write_text(json.dumps({"max_seq_length": 128, "do_lower_case": False}))
