"""Make a small vision model and its processor under any id: a Gemma 3, which needs no torchvision."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from .models import VOCABULARY, model_of, tokenizer
from .shrink import shrunk

_PART = "{{ part['text'] if part['text'] else '' }}"  # of the chat templates in `models`
_SIDE, _PATCH = 32, 16  # pixels of a picture's side, and of a patch's
_SEEN = (_SIDE // _PATCH) ** 2  # tokens of a picture
#: The tokens for a picture, by their names in Gemma's tokenizer.
_TOKENS = {"boi_token": "<start_of_image>", "eoi_token": "<end_of_image>", "image_token": "<image_soft_token>"}


def build(name: str, folder: Path) -> None:
    """Make the stand-in for the model `name`, and its processor, in `folder`."""
    import transformers

    about = model_of(name)
    part = "{{ '<start_of_image>' if part['type'] == 'image' else part['text'] or '' }}"
    words = tokenizer(about._replace(chat=about.chat.replace(_PART, part)), _TOKENS)
    kinds = ("Gemma3ImageProcessorPil", "Gemma3ImageProcessor")  # transformers 5 and 4: neither needs torchvision
    pictures = next(getattr(transformers, kind) for kind in kinds if hasattr(transformers, kind))
    size = {"height": _SIDE, "width": _SIDE}
    processor = transformers.Gemma3Processor(
        pictures(size=size), words, chat_template=words.chat_template, image_seq_length=_SEEN
    )
    processor.save_pretrained(folder)
    save(_config(words), folder)


def save(config: Any, folder: Path) -> None:
    """Write a model of this configuration, after a test with a picture from the processor in its folder.

    Raises:
        Exception: the test failed.
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


def _config(words: Any) -> Any:
    import transformers

    usual = transformers.Gemma3Config()
    settings = shrunk(usual.to_dict()) | {"mm_tokens_per_image": _SEEN}
    settings["vision_config"] |= {"image_size": _SIDE, "patch_size": _PATCH}
    settings["text_config"] |= {"vocab_size": VOCABULARY}
    settings |= {f"{key}_index": words.convert_tokens_to_ids(token) for key, token in _TOKENS.items()}
    for part in (settings, settings["text_config"]):
        part |= {key: getattr(words, key) for key in ("bos_token_id", "eos_token_id", "pad_token_id")}
    return type(usual).from_dict(settings)
