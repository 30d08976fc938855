"""How far one process is from itself with another order of sums, by kind of model: results/rounding.json.

    python -m benchmarks.rounding [KIND ...]

A small model of the rehearsal trains for three steps on the same eight rows a step: at once, in halves as two processes
have them, row by row, and in reverse. What is kept is the largest difference of losses (relative, at least 1) and of
gradient norms between the first of these and another.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
import transformers

from benchmarks.rehearsals import ROOT, write
from nb2ddp.rehearsal.stage.models import build_model

OUT = ROOT / "benchmarks" / "results" / "rounding.json"
ROWS, TOKENS, STEPS = 8, 48, 3
#: Ids of the hub whose stand-ins train, by the kind that a rehearsal tells models apart by.
KINDS = {
    "dense": ("unsloth/Llama-3.2-1B", "unsloth/gemma-3-4b-it", "unsloth/Qwen3-4B"),
    "experts": ("unsloth/Qwen3-30B-A3B", "unsloth/gpt-oss-20b", "unsloth/gemma-4-26b-a4b-it"),
    "speech": ("unsloth/whisper-large-v3", "unsloth/csm-1b"),
    "embeddings": ("sentence-transformers/all-MiniLM-L6-v2", "unsloth/embeddinggemma-300m"),
    "rewards": ("unsloth/Llama-3.2-1B", "unsloth/Qwen3-4B"),
}
#: The parts of a step: all rows, halves, each row, all in reverse.
ORDERS = (
    [range(ROWS)],
    [range(0, ROWS, 2), range(1, ROWS, 2)],
    [[row] for row in range(ROWS)],
    [range(ROWS - 1, -1, -1)],
)


def loss_of(kind: str, model: Any, rows: dict[str, torch.Tensor], part: list[int]) -> torch.Tensor:
    """The part's share of a step's loss."""
    mine = {name: value[part] for name, value in rows.items()}
    if kind == "embeddings":  # every part has all rows as candidates, as gathering gives them
        both = [model(input_ids=rows[name]).last_hidden_state.mean(1) for name in ("input_ids", "labels")]
        first, second = (torch.nn.functional.normalize(each, dim=-1) for each in both)
        scores = 20 * first[part] @ second.T
        return torch.nn.functional.cross_entropy(scores, torch.tensor(part), reduction="sum") / ROWS
    if kind == "rewards":
        chosen = model(input_ids=mine["input_ids"]).logits[:, :-1].log_softmax(-1)
        said = chosen.gather(-1, mine["input_ids"][:, 1:, None])[..., 0]
        gained = torch.linspace(-1, 1, ROWS)[part]
        return -((said - said.detach()).exp() * gained[:, None]).sum() / ROWS / (TOKENS - 1)
    if "input_values" in rows or "input_features" in rows:
        return model(**mine).loss * len(part) / ROWS
    logits = model(input_ids=mine["input_ids"]).logits[:, :-1]
    wanted = mine["input_ids"][:, 1:]
    return torch.nn.functional.cross_entropy(logits.flatten(0, 1).float(), wanted.flatten(), reduction="sum") / (
        ROWS * (TOKENS - 1)
    )


def rows_for(folder: Path, seed: int) -> dict[str, torch.Tensor]:
    """Rows of random tokens; with sounds for models that hear."""
    draw = torch.Generator().manual_seed(seed)
    config = transformers.AutoConfig.from_pretrained(folder)
    if config.model_type == "csm":
        processor = transformers.AutoProcessor.from_pretrained(folder)
        tone = [torch.randn(9600, generator=draw).numpy() for _ in range(ROWS)]
        texts = ["[0]a few words<|AUDIO|><|audio_eos|>"] * ROWS
        return dict(processor(text=texts, audio=tone, output_labels=True, return_tensors="pt"))
    tokens = {name: torch.randint(4, 300, (ROWS, TOKENS), generator=draw) for name in ("input_ids", "labels")}
    if config.model_type == "whisper":
        return {"input_features": torch.randn(ROWS, 80, 3000, generator=draw), "labels": tokens["labels"]}
    return tokens


def trained(kind: str, folder: Path, parts: Any, dtype: torch.dtype) -> Iterator[tuple[float, float]]:
    """The loss and gradient norm of each step."""
    loader = {
        "whisper": transformers.WhisperForConditionalGeneration,
        "csm": transformers.CsmForConditionalGeneration,
    }.get(transformers.AutoConfig.from_pretrained(folder).model_type)
    loader = loader or (transformers.AutoModel if kind == "embeddings" else transformers.AutoModelForCausalLM)
    model = loader.from_pretrained(folder, dtype=dtype).train()
    steps = torch.optim.AdamW(model.parameters(), lr=2e-4)
    for step in range(STEPS):
        rows, total = rows_for(folder, step), 0.0
        for part in parts:
            loss = loss_of(kind, model, rows, list(part))
            loss.backward()
            total += loss.item()
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        yield total, float(norm)
        steps.step()
        steps.zero_grad()


def measured(kind: str, dtype: torch.dtype) -> dict[str, dict[str, float]]:
    """The largest differences of each model."""
    found = {}
    for name in KINDS[kind]:
        with tempfile.TemporaryDirectory() as folder:
            build_model(name, Path(folder))
            worst = [0.0, 0.0]
            first, *others = (list(trained(kind, Path(folder), parts, dtype)) for parts in ORDERS)
            for (loss, norm), (loss2, norm2) in ((a, b) for other in others for a, b in zip(first, other, strict=True)):
                apart = abs(loss - loss2) / max(1.0, abs(loss)), abs(norm - norm2) / max(norm, 1e-3)
                worst = [max(pair) for pair in zip(worst, apart, strict=True)]
        found[name] = {"loss": float(f"{worst[0]:.1e}"), "norm": float(f"{worst[1]:.1e}")}
        print(kind, dtype, name, found[name], flush=True)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.rounding", description=__doc__)
    parser.add_argument("kinds", nargs="*", choices=[[], *KINDS])
    for kind in parser.parse_args().kinds or KINDS:
        for name, dtype in (("float32", torch.float32), ("bfloat16", torch.bfloat16)):
            told = {f"{kind}, {name}": measured(kind, dtype)}
            write((json.loads(OUT.read_text()) if OUT.exists() else {}) | told, OUT)


if __name__ == "__main__":
    main()
