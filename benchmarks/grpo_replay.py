"""Train GRPO on given completions, as one process and as several, and write down what each step gave.

    python -m benchmarks.grpo_replay trl one.json
    torchrun --nproc_per_node 2 -m benchmarks.grpo_replay trl two.json
    python -m benchmarks.grpo_replay --compare one.json two.json

Completions are sampled, so two runs differ before anything is wrong. Here each is made of its prompt and its number
among the completions of that prompt, so that one process and several score, weigh and learn the same ones. `unsloth`
instead of `trl` trains with Unsloth's patched trainer. The model is a Llama of two layers with random weights, with
LoRA. TRL alone needs a GPU: its fused head is written in Triton.
"""

from __future__ import annotations

import json
import os
import random
import sys
from pathlib import Path
from typing import Any

RANK, WORLD_SIZE = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
#: Name, completions of a prompt, per-device batch and accumulation of one process, further settings.
CASES: tuple[tuple[str, int, int, int, dict[str, Any]], ...] = (
    ("grpo", 4, 4, 2, {"loss_type": "grpo"}),
    ("grpo, a reference model", 4, 4, 2, {"loss_type": "grpo", "beta": 0.04}),
    ("dr_grpo", 4, 4, 2, {"loss_type": "dr_grpo"}),
    ("bnpo", 4, 4, 2, {"loss_type": "bnpo"}),
    ("dapo", 4, 4, 2, {"loss_type": "dapo"}),
    ("sequence", 4, 4, 2, {"loss_type": "grpo", "importance_sampling_level": "sequence"}),
    ("a prompt's completions on two processes", 4, 2, 2, {"loss_type": "grpo"}),
    ("three completions of a prompt", 3, 3, 4, {"loss_type": "grpo"}),
    ("six completions of a prompt", 6, 6, 2, {"loss_type": "grpo"}),
    ("two steps a generation", 4, 4, 2, {"loss_type": "grpo", "steps_per_generation": 4}),
    ("not scaled", 4, 4, 2, {"loss_type": "grpo", "scale_rewards": False}),
    ("scaled over the batch", 4, 4, 2, {"loss_type": "grpo", "scale_rewards": "batch"}),
)
STEPS = 4
TARGETS = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]


def split(per_device: int, accumulation: int, settings: dict[str, Any]) -> dict[str, int]:
    """Batch and accumulation of each process for the same completions a step; generations span as many steps."""
    share = per_device * accumulation // WORLD_SIZE
    size = max(n for n in range(1, per_device + 1) if share % n == 0)
    steps = share // size
    more = (
        {"steps_per_generation": settings["steps_per_generation"] * steps // accumulation}
        if settings.get("steps_per_generation")
        else {}
    )
    return {"per_device_train_batch_size": size, "gradient_accumulation_steps": steps, **more}


def completion(prompt: list[int], number: int, call: int, vocabulary: int) -> list[int]:
    """Token ids of a length of their own, from a prompt and the completion's number."""
    rng = random.Random(f"{prompt} {number} {call}")
    return [rng.randrange(60, vocabulary) for _ in range(rng.randint(4, 16))]


def odd(completion_ids: list[list[int]], **_: Any) -> list[float]:
    """The share of odd tokens."""
    return [sum(token % 2 for token in tokens) / len(tokens) for tokens in completion_ids]


def long(completion_ids: list[list[int]], **_: Any) -> list[float]:
    """The length of a completion, as a second reward."""
    return [len(tokens) / 16 for tokens in completion_ids]


def train(case: tuple[str, int, int, int, dict[str, Any]], library: str, hub: Path) -> dict[str, Any]:
    """One training; its steps as the trainer logs them, and the advantages of each call, in the order of processes."""
    import torch
    from accelerate.utils import gather_object, set_seed
    from datasets import Dataset
    from trl import GRPOConfig, GRPOTrainer

    _, generations, per_device, accumulation, settings = case
    model, words = load(library, hub)
    rows = Dataset.from_list([{"prompt": f"Count to {number} and stop."} for number in range(64)])
    set_seed(3407)
    trainer = GRPOTrainer(
        model=model,
        processing_class=words,
        reward_funcs=[odd, long],
        train_dataset=rows,
        args=GRPOConfig(
            **{**settings, **split(per_device, accumulation, settings)},
            num_generations=generations,
            max_completion_length=16,
            max_steps=STEPS,
            learning_rate=1e-3,
            lr_scheduler_type="constant",
            optim="adamw_torch",
            max_grad_norm=1e9,
            logging_steps=1,
            logging_nan_inf_filter=False,
            report_to="none",
            save_strategy="no",
            ddp_find_unused_parameters=False,
            output_dir=str(hub / "outputs"),
            bf16=False,
            use_cpu=not torch.cuda.is_available(),
        ),
    )
    calls: list[list[float]] = []

    def replay(prompt_ids: list[list[int]], *_: Any, **__: Any) -> tuple[list[list[int]], None]:
        first = RANK * len(prompt_ids)
        numbers = [(first + place) % generations for place in range(len(prompt_ids))]
        made = [completion(p, n, len(calls), len(words)) for p, n in zip(prompt_ids, numbers, strict=True)]
        return made, None

    score = trainer._generate_and_score_completions

    def scored(inputs: Any) -> Any:
        output = score(inputs)
        calls.append(gather_object(output["advantages"].tolist()))
        return output

    trainer._generate_single_turn, trainer._generate_and_score_completions = replay, scored
    trainer.train()
    steps = [
        {name: log.get(name) for name in ("loss", "grad_norm", "reward", "reward_std")}
        for log in trainer.state.log_history
        if "loss" in log
    ]
    return {"steps": steps, "advantages": calls}


def load(library: str, hub: Path) -> tuple[Any, Any]:
    """The model with its adapter, and the tokenizer."""
    import torch

    if library == "unsloth":
        from unsloth import FastLanguageModel

        model, words = FastLanguageModel.from_pretrained(
            str(hub / "model"),
            max_seq_length=128,
            load_in_4bit=False,
            dtype=torch.float32,
            device_map=int(os.environ.get("LOCAL_RANK", 0)),
        )
        made = FastLanguageModel.get_peft_model(model, r=8, target_modules=TARGETS, lora_alpha=16, random_state=3407)
        return made, words
    from peft import LoraConfig, get_peft_model
    from transformers import AutoModelForCausalLM, AutoTokenizer, set_seed

    set_seed(3407)
    model = AutoModelForCausalLM.from_pretrained(hub / "model", dtype=torch.float32)
    return get_peft_model(model, LoraConfig(r=8, target_modules=TARGETS, lora_alpha=16)), AutoTokenizer.from_pretrained(
        hub / "model"
    )


def build(hub: Path) -> None:
    """A Llama of two layers whose tokens are single bytes, drawn from seed 0."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    from nb2ddp.rehearsal.stage.models import Model, tokenizer

    words = tokenizer(Model("llama", "<|begin_of_text|>", "<|end_of_text|>"))
    torch.manual_seed(0)
    sizes = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4}
    special = {"bos_token_id": words.bos_token_id, "eos_token_id": words.eos_token_id}
    config = LlamaConfig(**sizes, **special, vocab_size=len(words), pad_token_id=words.pad_token_id)
    LlamaForCausalLM(config).save_pretrained(hub / "model")
    words.save_pretrained(hub / "model")


def apart(one: dict[str, Any], other: dict[str, Any]) -> dict[str, dict[str, float]]:
    """The largest difference of each figure between two results, for each case that both have."""
    found = {}
    for name in [name for name in one if name in other]:
        steps = list(zip(one[name]["steps"], other[name]["steps"], strict=True))
        found[name] = {
            figure: max(abs((a[figure] or 0) - (b[figure] or 0)) for a, b in steps)
            for figure in ("loss", "grad_norm", "reward", "reward_std")
        }
        calls = zip(one[name]["advantages"], other[name]["advantages"], strict=True)
        found[name]["advantages"] = max(abs(a - b) for x, y in calls for a, b in zip(x, y, strict=True))
    return found


def main(words: list[str]) -> None:
    if words[0] == "--compare":
        first, second = (json.loads(Path(word).read_text()) for word in words[1:])
        for name, figures in apart(first, second).items():
            print(f"{name:42}", "  ".join(f"{figure} {value:.1e}" for figure, value in figures.items()))
        return
    library, out = words[0], Path(words[1])
    if library == "unsloth":
        os.environ["UNSLOTH_DISABLE_TRAINER_PATCHING"] = "1"
        import torch
        import unsloth  # noqa: F401

        if torch.cuda.is_available():
            torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", 0)))
    import torch
    from accelerate import PartialState

    state = PartialState(cpu=not torch.cuda.is_available())
    hub = out.resolve().with_suffix("")
    with state.main_process_first():
        if not (hub / "model").exists():
            build(hub)
    wanted = [case for case in CASES if len(words) < 3 or case[0] in words[2:]]
    found = {}
    for case in wanted:
        found[case[0]] = train(case, library, hub)
        if RANK == 0:
            out.write_text(json.dumps(found, indent=1) + "\n")
    state.wait_for_everyone()
    state.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1:])
