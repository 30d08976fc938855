"""Build the tiny hub that the end-to-end tests train on: `python -m tests.e2e.hub FOLDER`.

`transformers` and `datasets` read a repository id such as "unsloth/Qwen3-0.6B" from the folder of that name
below the working directory, if there is one. The hub is a folder of such folders: two-layer models with
random weights, a tokenizer of single bytes, and synthetic rows in parquet. A script needs no change to run.

The same folder comes out of every build: each model is drawn from the same seed, each data set from its own.
"""

from __future__ import annotations

import argparse
import random
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

    from transformers import PretrainedConfig, PreTrainedTokenizerFast


CHAT_TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
Row = dict[str, Any]


class Model(NamedTuple):
    """An architecture, the tokens that begin and end a text, how a conversation is written, and further settings."""

    family: str
    begin: str | None
    end: str
    chat_template: str = CHAT_TEMPLATE
    settings: dict[str, Any] | None = None


class Data(NamedTuple):
    """How a row of a data set is made, and the split and the configuration that its rows are found under."""

    row: Callable[[random.Random], Row]
    split: str = "train"
    configuration: str = "default"
    rows: int = 240


MODELS = {
    "unsloth/Llama-3.2-1B": Model("llama", "<|begin_of_text|>", "<|end_of_text|>"),
    "unsloth/Llama-3.2-1B-Instruct": Model("llama", "<|begin_of_text|>", "<|eot_id|>"),
    "unsloth/mistral-7b-v0.3": Model("mistral", "<s>", "</s>"),
    "unsloth/Qwen2.5-0.5B-Instruct": Model("qwen2", None, "<|im_end|>"),
    "unsloth/Qwen3-0.6B": Model("qwen3", None, "<|im_end|>"),
    "unsloth/gemma-3-270m-it": Model("gemma3_text", "<bos>", "<end_of_turn>"),
}
SENTENCE_ENCODER = "sentence-transformers/all-MiniLM-L6-v2"
# Where Unsloth looks for its own 4-bit copies of a model.
COPIES = ("{}-bnb-4bit", "{}-unsloth-bnb-4bit")

SPECIAL_TOKENS = [
    *("<unk>", "<pad>", "<s>", "</s>", "<bos>", "<eos>", "<start_of_turn>", "<end_of_turn>", "<|turn>", "<turn|>"),
    *("<|begin_of_text|>", "<|end_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"),
    *("<|im_start|>", "<|im_end|>", "<|endoftext|>", "<|startoftext|>", "<|end|>", "<|start|>", "<|message|>"),
    *("<|channel|>", "<|start_of_role|>", "<|end_of_role|>", "<|user|>", "<|assistant|>", "<|system|>"),
    *("[INST]", "[/INST]", "<think>", "</think>"),
]
WORDS = [
    *("amber", "basin", "cedar", "delta", "ember", "fjord", "grove", "harbor", "inlet", "jade", "kelp"),
    *("lagoon", "meadow", "north", "orchard", "pebble", "quarry", "ridge", "summit", "timber", "valley"),
    *("carries", "follows", "keeps", "leaves", "meets", "turns"),
]


def sentences(rng: random.Random, most: int = 3) -> str:
    """One to `most` made-up sentences of different lengths."""
    lines = [" ".join(rng.choices(WORDS, k=rng.randint(3, 9))) for _ in range(rng.randint(1, most))]
    return " ".join(line.capitalize() + "." for line in lines)


def instruction_row(rng: random.Random) -> Row:
    return {
        "instruction": sentences(rng, 1),
        "input": rng.choice(["", sentences(rng, 1)]),
        "output": sentences(rng),
    }


def conversation_row(rng: random.Random) -> Row:
    speakers = ("human", "gpt") * rng.randint(1, 2)
    return {"conversations": [{"from": who, "value": sentences(rng)} for who in speakers], "source": "tiny"}


DATASETS = {
    "yahma/alpaca-cleaned": Data(instruction_row),
    "mlabonne/FineTome-100k": Data(conversation_row),
    "roneneldan/TinyStories": Data(lambda rng: {"text": sentences(rng, 6)}),
    "databricks/databricks-dolly-15k": Data(
        lambda rng: {
            "instruction": sentences(rng, 1),
            "context": rng.choice(["", sentences(rng, 2)]),
            "response": sentences(rng),
            "category": rng.choice(["open_qa", "summarization"]),
        }
    ),
    "openai/gsm8k": Data(
        lambda rng: {"question": sentences(rng), "answer": f"{sentences(rng)} #### {rng.randint(0, 99)}"},
        configuration="main",
    ),
    "Abirate/english_quotes": Data(lambda rng: {"quote": sentences(rng, 2), "author": rng.choice(WORDS).capitalize()}),
    "stanfordnlp/imdb": Data(lambda rng: {"text": sentences(rng), "label": rng.randint(0, 1)}),
}


def tokenizer(model: Model) -> PreTrainedTokenizerFast:
    """A byte-level tokenizer without merges: 256 bytes and the special tokens."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    core = Tokenizer(models.BPE(vocab={token: i for i, token in enumerate(alphabet)}, merges=[]))
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    core.decoder = decoders.ByteLevel()
    core.add_special_tokens(SPECIAL_TOKENS)
    return PreTrainedTokenizerFast(
        tokenizer_object=core,
        bos_token=model.begin,
        eos_token=model.end,
        pad_token="<pad>",
        unk_token="<unk>",
        model_max_length=4096,
        chat_template=model.chat_template,
    )


def model_config(model: Model, words: PreTrainedTokenizerFast) -> PretrainedConfig:
    """Two layers of 128, wide enough for 4-bit blocks and for the attention kernels of a GPU."""
    from transformers import AutoConfig

    settings = {
        "vocab_size": 512,  # more than the tokenizer has, as in most models
        "hidden_size": 128,
        "intermediate_size": 256,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 32,
        "max_position_embeddings": 4096,
        "tie_word_embeddings": False,
        "bos_token_id": words.bos_token_id,
        "eos_token_id": words.eos_token_id,
        "pad_token_id": words.pad_token_id,
    }
    return AutoConfig.for_model(model.family, **settings | (model.settings or {}))


def build_models(root: Path, models: dict[str, Model]) -> None:
    """Each of `models` below `root`, with links under the names of its 4-bit copies."""
    import torch
    from transformers import AutoModelForCausalLM

    for name, about in models.items():
        words = tokenizer(about)
        torch.manual_seed(0)
        config = model_config(about, words)
        AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16).save_pretrained(root / name)
        words.save_pretrained(root / name)
        folder = Path(name)
        for copy in COPIES:
            for spelling in {folder.name, folder.name.lower()}:
                link = root / folder.parent / copy.format(spelling)
                if not link.exists():
                    link.symlink_to(folder.name)


def build_sentence_encoder(folder: Path) -> None:
    """Two layers of BERT with mean pooling; no dropout, which every process would draw for itself."""
    import torch
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.models import Pooling, Transformer
    from transformers import BertConfig, BertModel

    words = tokenizer(Model("bert", "<s>", "</s>"))
    sizes = {"hidden_size": 128, "intermediate_size": 256, "num_hidden_layers": 2, "num_attention_heads": 4}
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=512,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
        pad_token_id=words.pad_token_id,
        **sizes,
    )
    with tempfile.TemporaryDirectory() as parts:
        BertModel(config).save_pretrained(parts)
        words.save_pretrained(parts)
        encoder = Transformer(parts, max_seq_length=128)
    SentenceTransformer(modules=[encoder, Pooling(128)], device="cpu").save(str(folder))


def build_datasets(root: Path, datasets: dict[str, Data]) -> None:
    """Each of `datasets` below `root`: one parquet file, and a card that names its configuration."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    for name, about in datasets.items():
        rng = random.Random(name)
        folder = root / name
        folder.mkdir(parents=True, exist_ok=True)
        table = pa.Table.from_pylist([about.row(rng) for _ in range(about.rows)])
        pq.write_table(table, folder / f"{about.split}.parquet")
        card = [
            *("---", "configs:", f"- config_name: {about.configuration}", "  data_files:"),
            *(f"  - split: {about.split}", f"    path: {about.split}.parquet", "---", ""),
        ]
        (folder / "README.md").write_text("\n".join(card))


def build(root: Path) -> Path:
    """Build the whole hub in the folder `root`, which is made if it is missing, and return it."""
    build_models(root, MODELS)
    build_sentence_encoder(root / SENTENCE_ENCODER)
    build_datasets(root, DATASETS)
    return root


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.e2e.hub", description="Build the tiny hub.")
    parser.add_argument("folder", type=Path)
    print(build(parser.parse_args().folder))


if __name__ == "__main__":
    main()
