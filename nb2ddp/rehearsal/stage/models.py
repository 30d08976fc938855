"""Make small models for any id of the hub: the family that the id names, two layers, random weights of one seed."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from .shrink import shrunk
from .toml import tables

if TYPE_CHECKING:
    from transformers import PretrainedConfig, PreTrainedTokenizerFast

_TABLES = tables(__file__)
VOCABULARY = 512  # more than the tokenizer has, as in most models
ENCODERS = frozenset({"bert", "modernbert"})
# The text of a message, whether it is given as a string or as a list of parts.
_CONTENT = (
    "{% if message['content'] is string %}{{ message['content'] }}{% elif message['content'] %}"
    "{% for part in message['content'] %}{{ part['text'] if part['text'] else '' }}{% endfor %}{% endif %}"
)


def _template(name: str) -> str:
    """Return the chat template of this name."""
    about: dict[str, str] = _TABLES["chats"][name]
    if "whole" in about:
        return about["whole"].replace("CONTENT", _CONTENT)
    before, answers = about["before"], about.get("answers", "assistant")
    role = f"{{{{ message['role'].replace('assistant', '{answers}') }}}}"
    return (
        "{% for message in messages %}" + before.replace("ROLE", role) + _CONTENT + about["after"] + "{% endfor %}"
        "{% if add_generation_prompt %}" + before.replace("ROLE", answers) + "{% endif %}"
    )


class Model(NamedTuple):
    """A family of transformers, the tokens that begin and end a text, its chat template, and further settings."""

    family: str
    begin: str | None
    end: str
    chat: str = _template("chatml")
    settings: dict[str, Any] | None = None


def model_of(name: str) -> Model:
    """Return the kind of model that an id of the hub names; a Llama if it names none."""
    about = next(each for each in _TABLES["families"] if re.search(each["id"], name.lower()))
    chat = _template(about.get("chat", "chatml"))
    return Model(about["family"], about.get("begin"), about["end"], chat, about.get("settings"))


def tokenizer(model: Model, named: dict[str, str] | None = None) -> PreTrainedTokenizerFast:
    """Return a tokenizer of single bytes, without merges, with special tokens; `named` are further ones with a name."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    core = Tokenizer(models.BPE(vocab={token: i for i, token in enumerate(alphabet)}, merges=[]))
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    core.decoder = decoders.ByteLevel()
    core.add_special_tokens([*_TABLES["special_tokens"], *dict.fromkeys((named or {}).values())])
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
    """Return the family's usual configuration, made small."""
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
    """Make the stand-in for the model `name` in `folder`."""
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
    source = Path(__file__).with_name("encoder")
    for file in source.rglob("*.json"):
        copy = folder / file.relative_to(source)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(file, copy)
