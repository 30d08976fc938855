"""A small model that speaks (Sesame's CSM), with its codec, and its processor."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from .shrink import HEAD, HEADS, shrunk

if TYPE_CHECKING:
    from pathlib import Path

    from transformers import PreTrainedTokenizerFast

#: Codes of a frame of sound. The steps of the codec stay those of the real one, by which the processor counts frames.
_CODES = 4
TOKENS = {"audio_token": "<|AUDIO|>", "audio_eos_token": "<|audio_eos|>"}


def build(words: PreTrainedTokenizerFast, folder: Path) -> None:
    """Make a model that speaks, and its processor, in `folder`."""
    import torch
    import transformers

    ids = {f"{key}_id": words.convert_tokens_to_ids(token) for key, token in TOKENS.items()}
    ids |= {f"{name}_token_id": getattr(words, f"{name}_token_id") for name in ("bos", "pad")}
    ids |= {"text_vocab_size": 512, "num_codebooks": _CODES}
    config = shrunk(transformers.CsmConfig().to_dict()) | ids
    config["depth_decoder_config"] |= {"num_codebooks": _CODES, "backbone_hidden_size": HEADS * HEAD}
    config["codec_config"] |= {
        **{"num_quantizers": _CODES, "num_filters": 8, "codebook_dim": HEAD},
        **{"vector_quantization_hidden_dimension": HEAD, "upsample_groups": HEADS * HEAD},
    }
    model = transformers.CsmForConditionalGeneration._from_config(
        transformers.CsmConfig.from_dict(config), dtype=torch.bfloat16
    )
    model.save_pretrained(folder)
    (folder / "generation_config.json").write_text(
        json.dumps(dict.fromkeys(("depth_decoder_max_new_tokens", "depth_decoder_min_new_tokens"), _CODES - 1))
    )
    hears = transformers.EncodecFeatureExtractor(sampling_rate=24000, feature_size=1)
    transformers.CsmProcessor(hears, words, chat_template=words.chat_template).save_pretrained(folder)
