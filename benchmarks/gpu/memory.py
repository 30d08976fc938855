"""Peak memory of a training step: `python -m benchmarks.gpu.memory --model bench/Llama-3B --precision 4bit ...`.

This loads one model once, as the notebooks load it, and trains it for a few steps with each given batch. For each batch
it writes the memory before training and its peak, in bytes as torch's allocator counts them, and the run's seconds.
`--limit 16` lets torch allocate no more than the memory of a 16 GB GPU.
"""

from __future__ import annotations

import os

os.environ["UNSLOTH_DISABLE_TRAINER_PATCHING"] = "1"
os.environ["UNSLOTH_NO_CUDA_EXTENSIONS"] = "1"

import argparse
import gc
import json
import random
import time
from pathlib import Path
from typing import Any

import torch

LOCAL_RANK, WORLD_SIZE = int(os.environ.get("LOCAL_RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
if WORLD_SIZE > 1 and torch.cuda.is_available():
    torch.cuda.set_device(LOCAL_RANK)

import unsloth  # noqa: E402  (before transformers and trl)

STEPS = 2
TARGETS = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
WORDS = "abcdefgh "


def load(options: argparse.Namespace) -> tuple[Any, Any]:
    """Return the model and its tokenizer, with LoRA adapters unless all weights are trained."""
    if options.kind == "embeddings":
        model = unsloth.FastSentenceTransformer.from_pretrained(options.model, max_seq_length=512)
        names = ["query", "key", "value", "dense"]
        adapted = unsloth.FastSentenceTransformer.get_peft_model(
            model, r=32, target_modules=names, lora_alpha=64, task_type="FEATURE_EXTRACTION"
        )
        return adapted, None
    kind = unsloth.FastVisionModel if options.kind == "vision" else unsloth.FastLanguageModel
    model, tokenizer = kind.from_pretrained(
        model_name=options.model,
        max_seq_length=8192,
        dtype=torch.float32 if options.precision == "32bit" else None,
        load_in_4bit=options.precision == "4bit",
        load_in_8bit=options.precision == "8bit",
        full_finetuning=options.precision == "full",
        **({"device_map": LOCAL_RANK} if torch.cuda.is_available() else {}),
    )
    if options.precision != "full":
        targets = {} if options.kind == "vision" else {"target_modules": TARGETS}
        checkpointing = {"use_gradient_checkpointing": "unsloth"}
        model = kind.get_peft_model(model, r=16, lora_alpha=16, random_state=3407, **checkpointing, **targets)
    return model, tokenizer


def lengths(rows: int, tokens: str) -> list[int]:
    """Return the token count of each row: `2048`, or `128-2048` for a range, with one longest row in each step."""
    low, _, high = tokens.rpartition("-")
    rng = random.Random(0)
    count = rows * STEPS * WORLD_SIZE
    return [int(high) if not low or at % rows == 0 else rng.randint(int(low), int(high)) for at in range(count)]


def text(length: int, rng: random.Random) -> str:
    """Return a text of `length` characters. The tokenizer makes one token of each."""
    return "".join(rng.choices(WORDS, k=max(1, length)))


def dataset(options: argparse.Namespace, rows: int, tokens: str) -> Any:
    """Return rows for this kind of training."""
    from datasets import Dataset
    from PIL import Image

    rng = random.Random(1)
    sizes = lengths(rows, tokens)
    if options.kind == "sft":
        ids = [[rng.randrange(32, 200) for _ in range(size)] for size in sizes]
        return Dataset.from_dict({"input_ids": ids, "labels": ids})
    if options.kind in ("dpo", "orpo"):
        answers = {name: [text(size - 64, rng) for size in sizes] for name in ("chosen", "rejected")}
        return Dataset.from_dict({"prompt": [text(62, rng) for _ in sizes], **answers})
    if options.kind == "grpo":
        return Dataset.from_dict({"prompt": [text(64, rng) for _ in sizes]})
    if options.kind == "embeddings":
        return Dataset.from_dict({name: [text(size - 2, rng) for size in sizes] for name in ("anchor", "positive")})
    side = 224
    picture = Image.frombytes("RGB", (side, side), rng.randbytes(3 * side * side))
    question = [{"type": "text", "text": "What is it?"}, {"type": "image", "image": picture}]
    return [
        {
            "messages": [
                {"role": "user", "content": question},
                {"role": "assistant", "content": [{"type": "text", "text": text(size - 120, rng)}]},
            ]
        }
        for size in sizes
    ]


def trainer_of(model: Any, tokenizer: Any, rows: int, tokens: str, options: argparse.Namespace) -> Any:
    """Return the trainer for this kind of training."""
    longest = int(tokens.rpartition("-")[2])
    data = dataset(options, rows, tokens)
    common = {
        "per_device_train_batch_size": rows,
        "gradient_accumulation_steps": 1,
        "max_steps": STEPS,
        "learning_rate": 1e-5,
        "logging_steps": 1,
        "optim": "adamw_8bit" if torch.cuda.is_available() else "adamw_torch",
        "output_dir": options.out.stem,
        "save_strategy": "no",
        "report_to": "none",
        "ddp_find_unused_parameters": False if WORLD_SIZE > 1 else None,
    }
    import trl

    if options.kind == "sft":
        args = trl.SFTConfig(max_length=longest, dataset_kwargs={"skip_prepare_dataset": True}, **common)
        return trl.SFTTrainer(model=model, processing_class=tokenizer, train_dataset=data, args=args)
    if options.kind == "dpo":
        args = trl.DPOConfig(max_length=longest, **common)
        return trl.DPOTrainer(model=model, ref_model=None, processing_class=tokenizer, train_dataset=data, args=args)
    if options.kind == "orpo":
        from trl.experimental.orpo import ORPOConfig, ORPOTrainer

        args = ORPOConfig(max_length=longest, **common)
        return ORPOTrainer(model=model, processing_class=tokenizer, train_dataset=data, args=args)
    if options.kind == "grpo":
        args = trl.GRPOConfig(num_generations=rows, max_completion_length=longest - 64, **common)
        rewards = [lambda completion_ids, **_: [sum(id % 2 for id in ids) / len(ids) for ids in completion_ids]]
        return trl.GRPOTrainer(
            model=model, processing_class=tokenizer, reward_funcs=rewards, train_dataset=data, args=args
        )
    if options.kind == "embeddings":
        from sentence_transformers import SentenceTransformerTrainer, SentenceTransformerTrainingArguments, losses

        del common["optim"]
        bits = {"bf16": torch.cuda.is_available()}
        args = SentenceTransformerTrainingArguments(**bits, **common)
        loss = losses.MultipleNegativesRankingLoss(model)
        return SentenceTransformerTrainer(model=model, train_dataset=data, loss=loss, args=args)
    from unsloth.trainer import UnslothVisionDataCollator

    unsloth.FastVisionModel.for_training(model)
    kept = {"remove_unused_columns": False, "dataset_text_field": "", "max_length": longest}
    args = trl.SFTConfig(dataset_kwargs={"skip_prepare_dataset": True}, **kept, **common)
    collator = UnslothVisionDataCollator(model, tokenizer)
    return trl.SFTTrainer(
        model=model, processing_class=tokenizer, data_collator=collator, train_dataset=data, args=args
    )


def train(model: Any, tokenizer: Any, rows: int, tokens: str, options: argparse.Namespace) -> dict[str, Any]:
    """Train a few steps of `rows` rows of `tokens` tokens, with checkpointing or, as a script does, without it."""
    gpu = torch.cuda.is_available()
    trainer = trainer_of(model, tokenizer, rows, tokens, options)
    if not options.checkpointing and options.kind != "embeddings":
        model._unsloth_gradient_checkpointing = trainer.args.gradient_checkpointing = False
    gc.collect()
    torch.cuda.empty_cache()
    before = torch.cuda.memory_allocated() if gpu else 0
    if gpu:
        torch.cuda.reset_peak_memory_stats()
    start = time.perf_counter()
    trainer.train()
    found = {
        "rows": rows,
        "tokens": tokens,
        "before": before,
        "peak": torch.cuda.max_memory_allocated() if gpu else 0,
        "reserved": torch.cuda.max_memory_reserved() if gpu else 0,
        "seconds": round(time.perf_counter() - start, 2),
        "losses": [log["loss"] for log in trainer.state.log_history if "loss" in log],
    }
    del trainer
    gc.collect()
    torch.cuda.empty_cache()
    return found


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", required=True)
    parser.add_argument("--kind", choices=["sft", "dpo", "orpo", "grpo", "vision", "embeddings"], default="sft")
    parser.add_argument("--precision", choices=["4bit", "8bit", "16bit", "32bit", "full"], required=True)
    parser.add_argument("--checkpointing", action="store_true")
    parser.add_argument("--batches", nargs="+", required=True, metavar="ROWSxTOKENS")
    parser.add_argument("--limit", type=float, help="GB that torch may allocate, as on a smaller GPU")
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    if options.limit:
        total = torch.cuda.get_device_properties(LOCAL_RANK).total_memory
        torch.cuda.set_per_process_memory_fraction(options.limit * 1e9 / total)
    model, tokenizer = load(options)
    weights = list(model.parameters())
    facts: dict[str, Any] = {
        "model": options.model,
        "kind": options.kind,
        "precision": options.precision,
        "checkpointing": options.checkpointing,
        "gpus": WORLD_SIZE,
        "limit": options.limit,
        "loaded": torch.cuda.memory_allocated() if torch.cuda.is_available() else 0,
        "weights": sum(weight.nbytes for weight in weights),
        "trained": sum(weight.nbytes for weight in weights if weight.requires_grad),
        "runs": [],
    }
    for batch in options.batches:
        rows, _, tokens = batch.partition("x")
        try:
            facts["runs"].append(train(model, tokenizer, int(rows), tokens, options))
        except torch.cuda.OutOfMemoryError as error:
            facts["runs"].append({"rows": int(rows), "tokens": tokens, "error": str(error)[:300]})
            torch.cuda.empty_cache()
        if LOCAL_RANK == 0:
            options.out.write_text(json.dumps(facts) + "\n")


if __name__ == "__main__":
    main()
