"""Peak memory of a training step: `python -m benchmarks.gpu.memory --model bench/Llama-3B --precision 4bit ...`.

One model is loaded once, as the notebooks load it, and trained a few steps with each batch and row length that is asked
for. Written for each: memory before training and its peak, in bytes, and the seconds of the last step.
"""

from __future__ import annotations

import os

os.environ["UNSLOTH_DISABLE_TRAINER_PATCHING"] = "1"
os.environ["UNSLOTH_NO_CUDA_EXTENSIONS"] = "1"

import argparse
import fcntl
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
from datasets import Dataset  # noqa: E402
from trl import SFTConfig, SFTTrainer  # noqa: E402

STEPS = 2


def load(options: argparse.Namespace) -> tuple[Any, Any]:
    """The model and its tokenizer, with LoRA adapters unless all is trained."""
    model, tokenizer = unsloth.FastLanguageModel.from_pretrained(
        model_name=options.model,
        max_seq_length=8192,
        dtype=None,
        load_in_4bit=options.precision == "4bit",
        full_finetuning=options.precision == "full",
        device_map=LOCAL_RANK if torch.cuda.is_available() else None,
    )
    model = unsloth.FastLanguageModel.get_peft_model(
        model,
        r=16,
        target_modules=["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"],
        lora_alpha=16,
        lora_dropout=0,
        bias="none",
        use_gradient_checkpointing="unsloth",
        random_state=3407,
    )
    return model, tokenizer


def train(model: Any, tokenizer: Any, rows: int, tokens: int, options: argparse.Namespace) -> dict[str, Any]:
    """Train a few steps of `rows` rows of `tokens` tokens, with checkpointing or, as a script does it, without."""
    rng = random.Random(0)
    ids = [[rng.randrange(32, 200) for _ in range(tokens)] for _ in range(rows * STEPS * WORLD_SIZE)]
    data = Dataset.from_dict({"input_ids": ids, "labels": ids})
    trainer = SFTTrainer(
        model=model,
        processing_class=tokenizer,
        train_dataset=data,
        args=SFTConfig(
            max_length=tokens,
            per_device_train_batch_size=rows,
            gradient_accumulation_steps=1,
            max_steps=STEPS,
            learning_rate=1e-5,
            logging_steps=1,
            optim="adamw_8bit" if torch.cuda.is_available() else "adamw_torch",
            output_dir=options.out.stem,
            save_strategy="no",
            report_to="none",
            ddp_find_unused_parameters=False if WORLD_SIZE > 1 else None,
            dataset_kwargs={"skip_prepare_dataset": True},
        ),
    )
    if not options.checkpointing:
        model._unsloth_gradient_checkpointing = trainer.args.gradient_checkpointing = False
    gc.collect()
    torch.cuda.empty_cache()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    start = time.perf_counter()
    trainer.train()
    torch.cuda.synchronize()
    found = {
        "rows": rows,
        "tokens": tokens,
        "before": before,
        "peak": torch.cuda.max_memory_allocated(),
        "reserved": torch.cuda.max_memory_reserved(),
        "after": torch.cuda.memory_allocated(),
        "checkpointed": sum(getattr(module, "gradient_checkpointing", False) is True for module in model.modules()),
        "seconds": round(time.perf_counter() - start, 2),
        "losses": [log["loss"] for log in trainer.state.log_history if "loss" in log],
    }
    del trainer
    gc.collect()
    torch.cuda.empty_cache()
    return found


def is_heavy(config: Any, tokens: int, checkpointing: bool) -> bool:
    """True for a batch that may take more than 12 GB: others on this GPU wait meanwhile."""
    values = 4 if checkpointing else 28  # of two bytes: what a layer keeps of a token
    return bool(tokens * values * config.hidden_size * config.num_hidden_layers > 12e9)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", required=True)
    parser.add_argument("--precision", choices=["4bit", "16bit", "full"], required=True)
    parser.add_argument("--checkpointing", action="store_true")
    parser.add_argument("--batches", nargs="+", required=True, metavar="ROWSxTOKENS")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument(
        "--lock", type=Path, required=True, help="held while a large batch is trained: one at a time on a GPU"
    )
    options = parser.parse_args()
    model, tokenizer = load(options)
    config = model.config
    names = ("hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "head_dim", "vocab_size")
    facts: dict[str, Any] = {
        "model": options.model,
        "precision": options.precision,
        "checkpointing": options.checkpointing,
        "type": config.model_type,
        "gpus": WORLD_SIZE,
        "config": {name: getattr(config, name, None) for name in names},
        "trained": sum(weight.nbytes for weight in model.parameters() if weight.requires_grad),
        "runs": [],
    }
    for batch in options.batches:
        rows, tokens = map(int, batch.split("x"))
        with options.lock.open("w") as lock:
            if WORLD_SIZE == 1 and is_heavy(config, rows * tokens, options.checkpointing):
                fcntl.flock(lock, fcntl.LOCK_EX)
            try:
                facts["runs"].append(train(model, tokenizer, rows, tokens, options))
            except torch.cuda.OutOfMemoryError as error:  # another process may hold the rest of the GPU
                facts["runs"].append({"rows": rows, "tokens": tokens, "error": str(error)[:300]})
                torch.cuda.empty_cache()
        if LOCAL_RANK == 0:
            options.out.write_text(json.dumps(facts) + "\n")


if __name__ == "__main__":
    main()
