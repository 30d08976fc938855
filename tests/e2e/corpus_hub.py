"""Build the tiny hub that the public notebooks train on: `python -m tests.e2e.corpus_hub FOLDER`.

What `hub.py` builds for the fixtures, for the ids that these notebooks load: models of their own architectures (of
those that see and hear, a text model), tokenizers with the marks of their chat templates, and data sets with their
columns. Images and sounds in a conversation are passed over.
"""

from __future__ import annotations

import argparse
import csv
import random
from pathlib import Path

from nb2ddp.rehearsal.stage.models import CHATML, ERNIE, GEMMA, GEMMA4, GRANITE, HARMONY, LLAMA3, MISTRAL, MUSE

from .hub import WORDS, Data, Model, Row, build_datasets, build_models, conversation_row, instruction_row, sentences

EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 64}
MAMBA = {"mamba_n_heads": 8, "mamba_d_head": 32, "mamba_d_state": 16, "mamba_chunk_size": 32}
LINEAR = {
    "layer_types": ["linear_attention", "full_attention"],
    "linear_key_head_dim": 32,
    "linear_value_head_dim": 32,
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
}
SLIDING = {"layer_types": ["sliding_attention", "full_attention"]}
PER_LAYER = {"vocab_size_per_layer_input": 512, "hidden_size_per_layer_input": 32}

LLAMA = Model("llama", "<|begin_of_text|>", "<|eot_id|>", LLAMA3)
MISTRAL_TEXT = Model("mistral", "<s>", "</s>", MISTRAL)
QWEN2 = Model("qwen2", None, "<|im_end|>", CHATML)
QWEN3 = Model("qwen3", None, "<|im_end|>", CHATML)
QWEN3_MOE = Model("qwen3_moe", None, "<|im_end|>", CHATML, EXPERTS)
QWEN3_5 = Model("qwen3_5_text", None, "<|im_end|>", CHATML, LINEAR)
PHI3 = Model("phi3", "<s>", "<|endoftext|>", CHATML)
GEMMA2 = Model("gemma2", "<bos>", "<eos>", GEMMA)
GEMMA3_TEXT = Model("gemma3_text", "<bos>", "<end_of_turn>", GEMMA)
GEMMA3N = SLIDING | PER_LAYER | {"num_kv_shared_layers": 0, "laurel_rank": 8}
GEMMA3N_TEXT = Model("gemma3n_text", "<bos>", "<end_of_turn>", GEMMA, GEMMA3N)
GEMMA4_TEXT = Model("gemma4_text", "<bos>", "<turn|>", GEMMA4, SLIDING | PER_LAYER)
GEMMA4_EXPERTS = SLIDING | EXPERTS | {"enable_moe_block": True, "top_k_experts": 2, "hidden_size_per_layer_input": 0}
GEMMA4_MOE = Model("gemma4_text", "<bos>", "<turn|>", GEMMA4, GEMMA4_EXPERTS)
LFM2 = Model("lfm2", "<|startoftext|>", "<|im_end|>", CHATML, {"layer_types": ["conv", "full_attention"]})
FALCON = Model("falcon_h1", "<|begin_of_text|>", "<|im_end|>", CHATML, MAMBA | {"mamba_d_ssm": 256})
GRANITE_DENSE = Model("granite", None, "<|end_of_text|>", GRANITE)
ERNIE_EXPERTS = {"moe_num_experts": 4, "moe_k": 2, "moe_intermediate_size": 64, "moe_num_shared_experts": 1}
ERNIE_MOE = Model("ernie4_5_moe", "<s>", "</s>", ERNIE, ERNIE_EXPERTS)
GPT_OSS = Model("gpt_oss", None, "<|end|>", HARMONY, SLIDING | {"num_local_experts": 4, "num_experts_per_tok": 2})

MODELS = {
    "unsloth/Llama-3.1-8B": LLAMA,
    "unsloth/Llama-3.3-70B-Instruct": LLAMA,
    "unsloth/llama-3-8b": LLAMA,
    "unsloth/mistral-7b-v0.3": MISTRAL_TEXT,
    "unsloth/Mistral-Small-Instruct-2409": MISTRAL_TEXT,
    "unsloth/Magistral-Small-2509": MISTRAL_TEXT,
    "unsloth/Muse-Glimmer-30B": Model("llama", "<s>", "<|end|>", MUSE),
    "unsloth/Qwen2-7B": QWEN2,
    "unsloth/Qwen2.5-Coder-14B-Instruct": QWEN2,
    "unsloth/Qwen3-4B-Instruct-2507": QWEN3,
    "unsloth/Qwen3-14B": QWEN3,
    "unsloth/Qwen3-14B-Base": QWEN3,
    "unsloth/Qwen3.5-27B": QWEN3_5,
    "imdatta0/tiny_qwen3_moe_2.8B_0.7B": QWEN3_MOE,
    "unsloth/Phi-3.5-mini-instruct": PHI3,
    "unsloth/Phi-3-medium-4k-instruct": PHI3,
    "unsloth/gemma-2-2b": GEMMA2,
    "unsloth/gemma-3-27b-it": GEMMA3_TEXT,
    "unsloth/gemma-4-E2B-it": GEMMA4_TEXT,
    "unsloth/gemma-4-E4B-it": GEMMA4_TEXT,
    "unsloth/gemma-4-12b-it": GEMMA4_TEXT,
    "unsloth/gemma-4-26B-A4B-it": GEMMA4_MOE,
    "unsloth/gemma-4-31B-it": GEMMA4_TEXT,
    "unsloth/gemma-3n-E4B-it": GEMMA3N_TEXT,
    "unsloth/LFM2-1.2B": LFM2,
    "unsloth/LFM2.5-1.2B-Instruct": LFM2,
    "tiiuae/Falcon-H1-0.5B-Instruct": FALCON,
    "unsloth/Falcon-H1-0.5B-Instruct": FALCON,
    "unsloth/granite-4.0-350m": GRANITE_DENSE,
    "unsloth/ERNIE-4.5-21B-A3B-PT": ERNIE_MOE,
    "unsloth/gpt-oss-20b": GPT_OSS,
}


def reasoning_row(rng: random.Random) -> Row:
    return {
        "problem": sentences(rng),
        "generated_solution": f"<think>{sentences(rng)}</think>{sentences(rng, 1)}",
        "expected_answer": str(rng.randint(0, 99)),
    }


def thinking_row(rng: random.Random) -> Row:
    speakers = ("system", "user", "assistant")
    return {"messages": [{"role": who, "content": sentences(rng), "thinking": None} for who in speakers]}


DATASETS = {
    "unsloth/alpaca-cleaned": Data(instruction_row),
    "yahma/alpaca-cleaned": Data(instruction_row),
    "mlabonne/FineTome-100k": Data(conversation_row),
    "philschmid/guanaco-sharegpt-style": Data(conversation_row),
    "FreedomIntelligence/alpaca-gpt4-korean": Data(conversation_row),
    "unsloth/OpenMathReasoning-mini": Data(reasoning_row, split="cot"),
    "HuggingFaceH4/Multilingual-Thinking": Data(thinking_row),
    # The notebook keeps one row of a hundred: as many as fill the batches of two processes in two steps.
    "wikimedia/wikipedia": Data(
        lambda rng: {"title": rng.choice(WORDS).capitalize(), "text": sentences(rng)},
        configuration="20231101.ko",
        rows=3200,
    ),
}
SHEET = "unsloth/Support-Bot-Recommendation/raw/main/support_recs.csv"


def build_sheet(root: Path) -> None:
    """The table of two columns, with one line above its rows, that two notebooks read from an address."""
    rng = random.Random(SHEET)
    file = root / SHEET
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("w", newline="") as sheet:
        lines = csv.writer(sheet)
        lines.writerow(["snippet", "recommendation"])
        lines.writerows([sentences(rng), sentences(rng)] for _ in range(240))


def build(root: Path) -> Path:
    """Build the whole hub in the folder `root`, which is made if it is missing, and return it."""
    build_models(root, MODELS)
    build_datasets(root, DATASETS)
    build_sheet(root)
    return root


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.e2e.corpus_hub", description="Build the tiny hub.")
    parser.add_argument("folder", type=Path)
    print(build(parser.parse_args().folder))


if __name__ == "__main__":
    main()
