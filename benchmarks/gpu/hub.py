"""Models of real size with random weights, and the data they train on: `python -m benchmarks.gpu.hub FOLDER NAME ...`.

`transformers` and `datasets` read an id such as "bench/Llama-3B" from the folder of that name below the working
directory. The sizes are those of the published models of that name. The tokenizer makes one token of each byte, so a
text of 2,000 characters has 2,000 tokens.
"""

from __future__ import annotations

import argparse
import json
import random
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nb2ddp.rehearsal.stage.models import Model, tokenizer
from nb2ddp.rehearsal.stage.shapes import sentences

if TYPE_CHECKING:
    from collections.abc import Callable

    from transformers import PreTrainedTokenizerFast

Row = dict[str, Any]

#: Sizes from the config.json of Llama 3.2 1B, Llama 3.2 3B and Llama 3.1 8B.
LLAMAS = {
    "Llama-small": {"hidden_size": 512, "intermediate_size": 1536, "num_hidden_layers": 4, "num_attention_heads": 8},
    "Llama-1B": {"hidden_size": 2048, "intermediate_size": 8192, "num_hidden_layers": 16, "num_attention_heads": 32},
    "Llama-3B": {"hidden_size": 3072, "intermediate_size": 8192, "num_hidden_layers": 28, "num_attention_heads": 24},
    "Llama-8B": {"hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32, "num_attention_heads": 32},
}
LLAMA_VOCABULARY = 128256
#: Sizes from the config.json of models of other families.
OTHERS: dict[str, tuple[Model, dict[str, Any]]] = {
    "Qwen3-0.6B": (
        Model("qwen3", None, "<|im_end|>"),
        {"hidden_size": 1024, "intermediate_size": 3072, "num_hidden_layers": 28, "num_attention_heads": 16}
        | {"num_key_value_heads": 8, "head_dim": 128, "vocab_size": 151936, "tie_word_embeddings": True},
    ),
    "Qwen2.5-0.5B": (
        Model("qwen2", None, "<|im_end|>"),
        {"hidden_size": 896, "intermediate_size": 4864, "num_hidden_layers": 24, "num_attention_heads": 14}
        | {"num_key_value_heads": 2, "vocab_size": 151936, "tie_word_embeddings": True},
    ),
    "Qwen-7B": (  # Qwen2.5 7B
        Model("qwen2", None, "<|im_end|>"),
        {"hidden_size": 3584, "intermediate_size": 18944, "num_hidden_layers": 28, "num_attention_heads": 28}
        | {"num_key_value_heads": 4, "vocab_size": 152064, "tie_word_embeddings": False},
    ),
    "Gemma-2-2B": (
        Model("gemma2", "<bos>", "<eos>"),
        {"hidden_size": 2304, "intermediate_size": 9216, "num_hidden_layers": 26, "num_attention_heads": 8}
        | {"num_key_value_heads": 4, "head_dim": 256, "vocab_size": 256000},
    ),
    "Gemma-3-1B": (
        Model("gemma3_text", "<bos>", "<end_of_turn>"),
        {"hidden_size": 1152, "intermediate_size": 6912, "num_hidden_layers": 26, "num_attention_heads": 4}
        | {"num_key_value_heads": 1, "head_dim": 256, "vocab_size": 262144},
    ),
    "Mistral-2B": (  # 8 of the 32 layers of Mistral 7B
        Model("mistral", "<s>", "</s>"),
        {"hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 8, "num_attention_heads": 32}
        | {"num_key_value_heads": 8, "vocab_size": 32768, "tie_word_embeddings": False},
    ),
}
VISION_TOKENS = ["<|vision_start|>", "<|vision_end|>", "<|vision_pad|>", "<|image_pad|>", "<|video_pad|>"]
VISION_TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{% for part in message['content'] %}"
    "{% if part['type'] == 'image' %}<|vision_start|><|image_pad|><|vision_end|>{% else %}{{ part['text'] }}{% endif %}"
    "{% endfor %}<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def tokens(words: PreTrainedTokenizerFast) -> dict[str, int | None]:
    """Return the token ids that a model's configuration names."""
    return {"bos_token_id": words.bos_token_id, "eos_token_id": words.eos_token_id, "pad_token_id": words.pad_token_id}


def save_causal(folder: Path, family: str, words: PreTrainedTokenizerFast, **sizes: Any) -> None:
    """Save a causal language model of these sizes, in bfloat16, drawn from seed 0."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    torch.manual_seed(0)
    config = AutoConfig.for_model(family, max_position_embeddings=8192, **tokens(words), **sizes)
    with torch.device("cuda" if torch.cuda.is_available() else "cpu"):
        model = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
    model.save_pretrained(folder, max_shard_size="4GB")
    words.save_pretrained(folder)


def llama(folder: Path) -> None:
    sizes = LLAMAS[folder.name]
    words = tokenizer(Model("llama", "<|begin_of_text|>", "<|end_of_text|>"))
    tied = folder.name != "Llama-8B"
    more = {"vocab_size": LLAMA_VOCABULARY, "num_key_value_heads": 8, "tie_word_embeddings": tied, "rope_theta": 5e5}
    save_causal(folder, "llama", words, **sizes, **more)


def other(folder: Path) -> None:
    model, sizes = OTHERS[folder.name]
    save_causal(folder, model.family, tokenizer(model), **sizes)


def experts(folder: Path) -> None:
    """Save a mixture of experts in the shape of Qwen3's: 32 experts, of which 4 see a token, 1.1B parameters."""
    words = tokenizer(Model("qwen3", None, "<|im_end|>"))
    sizes = {"hidden_size": 1024, "intermediate_size": 3072, "num_hidden_layers": 8, "num_attention_heads": 16}
    routed = {"num_experts": 32, "num_experts_per_tok": 4, "moe_intermediate_size": 512, "decoder_sparse_step": 1}
    save_causal(folder, "qwen3_moe", words, vocab_size=151936, num_key_value_heads=4, head_dim=64, **sizes, **routed)


def bert(folder: Path) -> None:
    """Save a sentence encoder of the size of all-MiniLM-L6-v2, with mean pooling."""
    import torch
    from sentence_transformers import SentenceTransformer, models
    from transformers import BertConfig, BertModel

    words = tokenizer(Model("bert", "<s>", "</s>"))
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=30522,
        hidden_size=384,
        num_hidden_layers=6,
        num_attention_heads=12,
        intermediate_size=1536,
        pad_token_id=words.pad_token_id,
    )
    parts = folder.parent / f"{folder.name}-transformer"
    BertModel(config).save_pretrained(parts)
    words.save_pretrained(parts)
    encoder = models.Transformer(str(parts), max_seq_length=256)
    pooling = models.Pooling(encoder.get_word_embedding_dimension())
    SentenceTransformer(modules=[encoder, pooling, models.Normalize()], device="cpu").save(str(folder))


def modern_bert(folder: Path) -> None:
    """Save a text classifier of ModernBERT's kind, with 8 layers of 512."""
    import torch
    from transformers import ModernBertConfig, ModernBertForMaskedLM

    words = tokenizer(Model("modernbert", "<s>", "</s>"))
    torch.manual_seed(0)
    config = ModernBertConfig(
        vocab_size=50368,
        hidden_size=512,
        intermediate_size=768,
        num_hidden_layers=8,
        num_attention_heads=8,
        pad_token_id=words.pad_token_id,
        eos_token_id=words.eos_token_id,
        bos_token_id=words.bos_token_id,
        cls_token_id=words.bos_token_id,
        sep_token_id=words.eos_token_id,
    )
    ModernBertForMaskedLM(config).save_pretrained(folder)
    words.save_pretrained(folder)


def name_as_published(file: Path) -> None:
    """Give the vision tower the model's name, as published checkpoints do. Unsloth reads it."""
    config = json.loads(file.read_text())
    config["vision_config"]["model_type"] = config["model_type"]
    file.write_text(json.dumps(config))


def qwen_vl(folder: Path) -> None:
    """Save a vision-language model in the shape of Qwen2-VL: 6 language layers of 1024, 4 vision layers of 320."""
    import torch
    from transformers import (
        Qwen2VLConfig,
        Qwen2VLForConditionalGeneration,
        Qwen2VLImageProcessor,
        Qwen2VLProcessor,
        Qwen2VLVideoProcessor,
    )

    words = tokenizer(Model("qwen2", None, "<|im_end|>"))
    words.add_special_tokens({"additional_special_tokens": VISION_TOKENS})
    start, end, _, image, video = words.convert_tokens_to_ids(VISION_TOKENS)
    sizes = {"hidden_size": 1024, "intermediate_size": 2816, "num_hidden_layers": 6, "num_attention_heads": 16}
    turned = {"num_key_value_heads": 4, "head_dim": 64, "rope_scaling": {"type": "mrope", "mrope_section": [8, 12, 12]}}
    config = Qwen2VLConfig(
        text_config={"vocab_size": 151936, **sizes, **turned, **tokens(words)},
        vision_config={"depth": 4, "embed_dim": 320, "hidden_size": 1024, "num_heads": 4, "mlp_ratio": 4},
        image_token_id=image,
        video_token_id=video,
        vision_start_token_id=start,
        vision_end_token_id=end,
    )
    torch.manual_seed(0)
    Qwen2VLForConditionalGeneration(config).to(torch.bfloat16).save_pretrained(folder)
    name_as_published(folder / "config.json")
    Qwen2VLProcessor(
        image_processor=Qwen2VLImageProcessor(min_pixels=56 * 56, max_pixels=224 * 224),
        tokenizer=words,
        video_processor=Qwen2VLVideoProcessor(),
        chat_template=VISION_TEMPLATE,
    ).save_pretrained(folder)


MODELS: dict[str, Callable[[Path], None]] = {
    **dict.fromkeys(LLAMAS, llama),
    **dict.fromkeys(OTHERS, other),
    "Qwen3-MoE": experts,
    "MiniLM": bert,
    "ModernBERT": modern_bert,
    "Qwen2-VL": qwen_vl,
}


def text(rng: random.Random, low: int, high: int) -> str:
    """Return made-up sentences of `low` to `high` characters in all."""
    length, parts = rng.randint(low, high), [sentences(rng)]
    while sum(map(len, parts)) + len(parts) < length:
        parts.append(sentences(rng))
    return " ".join(parts)[:length]


def mixed(rng: random.Random) -> Row:
    """Return a row. Two of a hundred are longer than 2,048 tokens, of which a notebook keeps 2,048."""
    return {"text": text(rng, 2100, 2400) if rng.random() < 0.02 else text(rng, 60, 700)}


def preference(rng: random.Random) -> Row:
    return {"prompt": text(rng, 60, 150), "chosen": text(rng, 80, 300), "rejected": text(rng, 80, 300)}


def picture(rng: random.Random) -> Row:
    """Return a small PNG of coloured noise, and a text about it."""
    import io

    from PIL import Image

    size = rng.choice([(112, 112), (112, 168), (168, 112)])
    data = io.BytesIO()
    Image.frombytes("RGB", size, rng.randbytes(3 * size[0] * size[1])).save(data, "png")
    return {"image": {"bytes": data.getvalue(), "path": None}, "text": text(rng, 40, 120)}


#: The number of rows, and a function that makes one. Of each row of "books", the notebooks keep 2,048 tokens.
DATASETS: dict[str, tuple[int, Callable[[random.Random], Row]]] = {
    "books": (1200, lambda rng: {"text": text(rng, 2100, 2400)}),
    "essays": (1200, lambda rng: {"text": text(rng, 1800, 2040)}),
    "letters": (1200, lambda rng: {"text": text(rng, 400, 500)}),
    "mixed": (3000, mixed),
    "notes": (130, lambda rng: {"text": text(rng, 100, 400)}),
    "preferences": (400, preference),
    "questions": (200, lambda rng: {"question": text(rng, 30, 80)}),
    "pairs": (4000, lambda rng: {"anchor": text(rng, 30, 120), "positive": text(rng, 30, 120)}),
    "repeated": (4000, lambda rng: {"anchor": text(rng, 30, 120), "positive": f"Answer {rng.randint(1, 300)}."}),
    "reviews": (2000, lambda rng: {"text": text(rng, 50, 300), "label": rng.randint(0, 3)}),
    "pictures": (400, picture),
}


def build_datasets(root: Path) -> None:
    """Write every data set of `DATASETS` below `root`, as one parquet file each."""
    from datasets import Dataset, Features, Image, Value

    for name, (count, row) in DATASETS.items():
        rng = random.Random(name)
        features = Features({"image": Image(), "text": Value("string")}) if name == "pictures" else None
        rows = Dataset.from_list([row(rng) for _ in range(count)], features=features)
        folder = root / "bench" / name / "data"
        folder.mkdir(parents=True, exist_ok=True)
        rows.to_parquet(folder / "train-00000-of-00001.parquet")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu.hub", description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("names", nargs="+", choices=[*MODELS, "datasets"], metavar="NAME")
    options = parser.parse_args()
    for name in options.names:
        if name == "datasets":
            build_datasets(options.folder)
        else:
            MODELS[name](options.folder / "bench" / name)


if __name__ == "__main__":
    main()
