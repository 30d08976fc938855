"""Small models that see, and their processors: a tower for pictures before the text model of the family."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from .models import VOCABULARY, model_of, tokenizer
from .shrink import shrunk

if TYPE_CHECKING:
    from pathlib import Path

_PART = "{{ part['text'] if part['text'] else '' }}"  # of the chats in `models`
_SIDE, _PATCH = 32, 16  # of the pictures of towers that want them in one size


@dataclass(frozen=True)
class Sight:
    """A family: what stands for a picture in a text, the tokens of it by name, and settings of its parts."""

    family: str
    mark: str
    tokens: dict[str, str]
    tower: dict[str, Any] = field(default_factory=dict)
    text: dict[str, Any] = field(default_factory=dict)
    settings: dict[str, Any] = field(default_factory=dict)
    processor: dict[str, Any] = field(default_factory=dict)
    pictures: dict[str, Any] = field(default_factory=dict)
    parts: str = ""  # the family of its processor, where that is another one


_ROPE = {"rope_parameters": {"rope_type": "default", "rope_theta": 10000.0, "mrope_section": [4, 6, 6]}}
_QWEN = {"image_token": "<|image_pad|>", "video_token": "<|video_pad|>"}
_QWEN |= {"vision_start_token": "<|vision_start|>", "vision_end_token": "<|vision_end|>"}
_SIZE = {"height": _SIDE, "width": _SIDE}
_TOWER = {"image_size": _SIDE, "patch_size": _PATCH}
_GEMMA = {"boi_token": "<start_of_image>", "eoi_token": "<end_of_image>", "image_token": "<image_soft_token>"}
_GEMMA_4 = {"boi_token": "<|image>", "eoi_token": "<image|>", "image_token": "<|image|>"}
_GEMMA_4 |= {"boa_token": "<|audio>", "eoa_token": "<audio|>", "audio_token": "<|audio|>"}
_LFM = {"image_token": "<image>", "image_start_token": "<|image_start|>", "image_end_token": "<|image_end|>"}
_PIXTRAL = {"image_token": "[IMG]", "image_break_token": "[IMG_BREAK]", "image_end_token": "[IMG_END]"}
_QWEN_2 = Sight("qwen2_vl", "<|vision_start|><|image_pad|><|vision_end|>", _QWEN, text=_ROPE)
_QWEN_3 = replace(_QWEN_2, pictures={"patch_size": _PATCH})

#: The family by what an id says, the first that fits.
SIGHTS = (
    (r"qwen-?2\.5-?vl", replace(_QWEN_2, family="qwen2_5_vl")),
    (r"qwen-?2-?vl", _QWEN_2),
    (r"qwen-?3-?vl(?!.*a\d+b)", replace(_QWEN_3, family="qwen3_vl")),
    (r"qwen-?3\.[56].*(a\d+b|moe)", replace(_QWEN_3, family="qwen3_5_moe")),
    (r"qwen-?3\.[56]", replace(_QWEN_3, family="qwen3_5")),
    (
        r"gemma-?3-(?!1b|270m)",
        Sight(
            "gemma3",
            "<start_of_image>",
            _GEMMA,
            tower=_TOWER,
            settings={"mm_tokens_per_image": (_SIDE // _PATCH) ** 2},
            processor={"image_seq_length": (_SIDE // _PATCH) ** 2},
            pictures={"size": _SIZE},
        ),
    ),
    (r"gemma-?4", Sight("gemma4", "<|image|>", _GEMMA_4)),
    (
        r"pixtral",
        Sight(
            "llava",
            "[IMG]",
            _PIXTRAL,
            tower={"model_type": "pixtral", "image_size": 1024, "patch_size": _PATCH, "head_dim": 32},
            text={"model_type": "mistral"},
            settings={"vision_feature_layer": -1, "vision_feature_select_strategy": "full"},
            parts="pixtral",
        ),
    ),
    (
        r"llama-?3\.2-(11|90)b",
        Sight(
            "mllama",
            "<|image|>",
            {"image_token": "<|image|>"},
            tower={**_TOWER, "num_global_layers": 1, "vision_output_dim": 256},  # of two layers, one behind the other
            pictures={"size": _SIZE},
        ),
    ),
    (r"lfm.*vl", Sight("lfm2_vl", "<image>", _LFM)),
    (r"paddleocr", replace(_QWEN_2, family="paddleocr_vl")),
)


def sight_of(name: str) -> Sight | None:
    """How a model of this id sees, or None."""
    return next((sight for pattern, sight in SIGHTS if re.search(pattern, name.lower())), None)


def build(name: str, sight: Sight, folder: Path) -> None:
    """Make the model that stands for `name`, and its processor, in `folder`.

    Raises:
        Exception: its processor cannot be made here (most of them need torchvision), or it does not see.
    """
    about = model_of(name)
    marks = {"image": sight.mark, "audio": sight.tokens.get("audio_token", "")}
    part = f"{{{{ {marks}.get(part['type'], part['text'] or '') }}}}"
    words = tokenizer(about._replace(chat=about.chat.replace(_PART, part)), sight.tokens)
    _write_processor(words, sight, folder)
    save(_config(words, sight), folder)


def save(config: Any, folder: Path) -> None:
    """Write a model of this configuration, once it has seen a picture as the processor in its folder gives it.

    Raises:
        Exception: it does not see.
    """
    import torch
    import transformers
    from PIL import Image

    torch.manual_seed(0)
    model = transformers.AutoModelForImageTextToText.from_config(config, dtype=torch.bfloat16)
    processor = transformers.AutoProcessor.from_pretrained(folder)
    asked = [{"role": "user", "content": [{"type": "image"}, {"type": "text", "text": "What is it?"}]}]
    text = processor.apply_chat_template(asked, tokenize=False)
    shown = processor(images=[Image.new("RGB", (_SIDE, _SIDE))], text=[text], return_tensors="pt")
    model(**shown.to(torch.bfloat16))
    model.save_pretrained(folder)


def _config(words: Any, sight: Sight) -> Any:
    import transformers

    parts = {"text_config": sight.text, "vision_config": sight.tower}
    parts |= {"audio_config": {}} if "audio_token" in sight.tokens else {}
    kinds = {part: {key: each[key] for key in each if key == "model_type"} for part, each in parts.items()}
    real = transformers.AutoConfig.for_model(sight.family, **kinds)
    settings = shrunk(real.to_dict()) | sight.settings
    settings["vision_config"] |= sight.tower
    is_older = "rope_scaling" in settings["text_config"]  # transformers 4 calls rotary positions so
    text = {"rope_scaling" if is_older and key == "rope_parameters" else key: each for key, each in sight.text.items()}
    settings["text_config"] |= text
    ids = {f"{key}_id": words.convert_tokens_to_ids(token) for key, token in sight.tokens.items()}
    ids |= {key.replace("_id", "_index"): value for key, value in ids.items()}
    ids |= {key: getattr(words, key) for key in ("bos_token_id", "eos_token_id", "pad_token_id")}
    ids |= dict.fromkeys(("vocab_size", "vocab_size_per_layer_input"), VOCABULARY)
    settings |= {f"{key}_id": ids[f"{key}_id"] for key in sight.tokens}  # transformers 4 does not declare all of them
    for part in (settings, settings["text_config"]):
        part |= {key: value for key, value in ids.items() if key in part}
    return type(real).from_dict(settings)


def _write_processor(words: Any, sight: Sight, folder: Path) -> None:
    """Write what the processor of a family reads."""
    import transformers
    from transformers.models.auto import (
        feature_extraction_auto,
        image_processing_auto,
        processing_auto,
        video_processing_auto,
    )

    family = sight.parts or sight.family
    pictures: Any = image_processing_auto.IMAGE_PROCESSOR_MAPPING_NAMES[family]
    has_library = transformers.utils.is_torchvision_available()
    if isinstance(pictures, tuple):  # transformers 4: the slow one, which needs no torchvision, and the fast one
        picture = pictures[-1 if has_library else 0] or pictures[0]
    else:
        picture = pictures["torchvision" if has_library else "pil"]
    parts = {
        "image_processor": (picture, sight.pictures),
        "video_processor": (video_processing_auto.VIDEO_PROCESSOR_MAPPING_NAMES.get(family), {}),
        "feature_extractor": (feature_extraction_auto.FEATURE_EXTRACTOR_MAPPING_NAMES.get(family), {}),
    }
    kind = getattr(transformers, processing_auto.PROCESSOR_MAPPING_NAMES[family])
    made = {name: getattr(transformers, own)(**given) for name, (own, given) in parts.items() if own}
    attributes = kind.get_attributes() if hasattr(kind, "get_attributes") else kind.attributes
    wanted = {name: made[name] for name in attributes if name in made}
    classes = getattr(kind, "tokenizer_class", None) or ()  # transformers 4 takes no other
    own = next((name for name in classes if str(name).endswith("Fast")), None) if isinstance(classes, tuple) else None
    words.__class__ = getattr(transformers, own) if own else words.__class__
    kind(**wanted, tokenizer=words, chat_template=words.chat_template, **sight.processor).save_pretrained(folder)
