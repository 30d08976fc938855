"""The trainings to measure: each kind, its notebook, and the numbers of GPUs on which it runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

NOTEBOOKS = Path(__file__).parent / "notebooks"


@dataclass(frozen=True)
class Job:
    """One run: a kind, a variant, and the number of GPUs.

    The variant is `notebook`, the notebook's own code as nbconvert exports it without its magics, started by
    `accelerate launch` on several GPUs; `converted`, the script of nb2ddp with the notebook's split of the batch;
    `script`, its default script; or `by_hand`, the same training with transformers, PEFT and TRL alone.
    """

    kind: str
    variant: str
    gpus: int

    @property
    def key(self) -> str:
        """The name of the run in the results."""
        return f"{self.kind}/{self.variant}/{self.gpus}"


ALL = (("converted", 1), ("converted", 2), ("converted", 4))
#: What a user may start instead of a script of nb2ddp.
CHOICES = tuple((variant, gpus) for variant in ("notebook", "script", "by_hand") for gpus in (1, 2, 4))


@dataclass(frozen=True)
class Kind:
    """One kind of training: a notebook with some of its settings replaced, and the model that it trains."""

    title: str
    notebook: str
    model: str  # below "bench/"
    settings: Mapping[str, str] = field(default_factory=dict)  # a name in the notebook -> its value, as code
    runs: tuple[tuple[str, int], ...] = ALL
    chance: str = ""  # why its losses may differ between runs, or "" if they must not
    timed: bool = False  # no other run uses the GPUs of its runs
    steps: int = 0  # after which a training stops, or 0 for the notebook's own number
    seconds: int = 60  # approximate time on one GPU, to fit runs into a time limit


#: Rows of one length, so that no process waits for another's longer ones.
EVEN = {"dataset": 'load_dataset("bench/books", split = "train")'}
TINY = {"model_name": '"bench/Llama-small"', "max_seq_length": "512"}
#: Rows of mixed length, in a training that is long enough for the script to choose its settings.
MIXED = {"model_name": '"bench/Qwen-7B"', "dataset": 'load_dataset("bench/mixed", split = "train")', "max_steps": "180"}

KINDS: dict[str, Kind] = {
    "mixed_8": Kind(
        "4-bit LoRA, 7.6B, rows of mixed length, 8 samples a step",
        "sft",
        "Qwen-7B",
        settings={**MIXED, "gradient_accumulation_steps": "4"},
        runs=CHOICES,
        timed=True,
        steps=12,
        seconds=80,
    ),
    "mixed_32": Kind(
        "4-bit LoRA, 7.6B, rows of mixed length, 32 samples a step",
        "sft",
        "Qwen-7B",
        settings={**MIXED, "gradient_accumulation_steps": "16"},
        runs=CHOICES,
        timed=True,
        steps=10,
        seconds=120,
    ),
    "sft_8b": Kind(
        "4-bit LoRA, 8.0B, 2,048 tokens",
        "sft",
        "Llama-8B",
        settings={**EVEN, "model_name": '"bench/Llama-8B"', "gradient_accumulation_steps": "4"},
        timed=True,
        seconds=110,
    ),
    "sft_3b": Kind(
        "4-bit LoRA, 3.2B, 2,048 tokens",
        "sft",
        "Llama-3B",
        settings=EVEN,
        runs=(("notebook", 1), *ALL),
        timed=True,
        seconds=110,
    ),
    "lora_16bit": Kind(
        "16-bit LoRA, 1.2B, 1,800 to 2,040 tokens",
        "sft",
        "Llama-1B",
        settings={"model_name": '"bench/Llama-1B"', "load_in_4bit": "False"},
        timed=True,
    ),
    "full": Kind(
        "full fine-tuning, 1.2B, 1,800 to 2,040 tokens",
        "sft",
        "Llama-1B",
        settings={
            "model_name": '"bench/Llama-1B"',
            "load_in_4bit": "False",
            "full_finetuning": "True",
            "learning_rate": "2e-5",
        },
        timed=True,
    ),
    "packing": Kind(
        "4-bit LoRA with packing to 2,048 tokens, 1.2B",
        "sft",
        "Llama-1B",
        settings={"model_name": '"bench/Llama-1B"', "packing": "True"},
        timed=True,
    ),
    "cpt": Kind("continued pre-training with embeddings, 4-bit, 1.2B", "cpt", "Llama-1B", timed=True),
    "moe": Kind(
        "16-bit LoRA on a mixture of experts",
        "experts",
        "Qwen3-MoE",
        settings={"model_name": '"bench/Qwen3-MoE"', "load_in_4bit": "False", "gradient_accumulation_steps": "4"},
    ),
    "vision": Kind("LoRA on a vision-language model", "vision", "Qwen2-VL"),
    "dpo": Kind("DPO", "dpo", "Llama-small"),
    "orpo": Kind("ORPO", "orpo", "Llama-small"),
    "grpo": Kind("GRPO without vLLM", "grpo", "Llama-small", chance="completions are sampled"),
    "embeddings": Kind(
        "sentence embeddings, in-batch negatives",
        "embeddings",
        "MiniLM",
        chance="the model has dropout, drawn by each process",
    ),
    "classification": Kind("classification, evaluation during training", "classification", "ModernBERT"),
    "resume": Kind("whole epochs, evaluation, checkpoints, resumed", "resume", "Llama-small"),
    "batch_3x2": Kind(
        "4-bit LoRA, 6 samples a step, which 4 GPUs cannot share",
        "sft",
        "Llama-small",
        settings={**TINY, "per_device_train_batch_size": "3", "gradient_accumulation_steps": "2"},
    ),
}


def jobs() -> list[Job]:
    """Return every run. Those that others wait for or that take longest come first."""
    return [Job(name, variant, gpus) for name, kind in KINDS.items() for variant, gpus in kind.runs]
