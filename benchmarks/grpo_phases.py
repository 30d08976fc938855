"""Time the parts of each GRPO step of one process, into "$BENCH_FOLDER/RANK.phases.jsonl": `attach(trainer)`.

The file has a line for each training: its steps. With $BENCH_GATE the first training stops after its second step until
the file "go" stands in that folder, so that steps are timed while other jobs wait.

Each part is timed to the end of what it asked of the GPU. `generating` holds the hand-over of the adapter to an engine;
`waiting` is the time until the slowest process has its completions; `scoring` is what follows up to the advantages
(rewards, log-probabilities of the old and the reference policy); `learning` is forward, backward and the optimizer.

`time_tokens(model)` times the engine alone, into "$BENCH_FOLDER/tokens.json"; `compare_server(trainer)` says into
"$BENCH_FOLDER/server.json" which weights a vLLM server has.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile
from transformers import TrainerCallback

RANK = os.environ.get("RANK", "0")
WARM_UP = 2  # steps before the gate


def digest(thing: Any) -> str:
    """A short hash of what prints alike."""
    return hashlib.sha256(repr(thing).encode()).hexdigest()[:8]


def now() -> float:
    """The time after the GPU has done what it was asked."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return time.perf_counter()


def wait_for_turn() -> None:
    """Say that this process is ready, and wait until its job may go on."""
    gate = Path(os.environ["BENCH_GATE"])
    (gate / f"ready-{RANK}").touch()
    while not (gate / "go").exists():
        time.sleep(0.05)


class Phases(TrainerCallback):  # type: ignore[misc]
    """Sums of seconds by part, for each step, and hashes of what was generated."""

    def __init__(self) -> None:
        self.steps: list[dict[str, Any]] = []
        self.current: dict[str, Any] = {}
        self.file = Path(os.environ["BENCH_FOLDER"], f"{RANK}.phases.jsonl")

    def add(self, part: str, seconds: float) -> None:
        self.current[part] = self.current.get(part, 0.0) + seconds

    def on_step_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if "BENCH_GATE" in os.environ and state.global_step == WARM_UP and not self.file.exists():
            wait_for_turn()
        self.began = now()
        self.current["at"] = time.time()

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self.current["whole"] = now() - self.began
        self.steps.append({"step": state.global_step, **self.current})
        self.current = {}

    def on_train_end(self, *_: Any, **__: Any) -> None:
        with self.file.open("a") as lines:
            lines.write(json.dumps(self.steps) + "\n")


def attach(trainer: Any) -> None:
    """Follow a trainer from its next step on."""
    phases = Phases()
    trainer.add_callback(phases)
    generate, score, learn = (
        trainer._generate_single_turn,
        trainer._generate_and_score_completions,
        trainer.training_step,
    )

    def generating(prompts: Any, *args: Any, **kwargs: Any) -> Any:
        start = now()
        given = generate(prompts, *args, **kwargs)
        phases.add("generating", (done := now()) - start)
        phases.current["generated"] = time.time()
        if torch.distributed.is_initialized():
            torch.distributed.barrier()
        phases.add("waiting", now() - done)
        made = given[0] if isinstance(given, tuple) else given
        phases.current.setdefault("prompts", []).extend(digest(p) for p in prompts)
        phases.current.setdefault("completions", []).extend(digest(list(c)) for c in made)
        phases.add("tokens", sum(len(c) for c in made))
        return given

    trainer._generate_single_turn = generating
    trainer._generate_and_score_completions = _timed(score, phases, "generating_and_scoring")
    trainer.training_step = _timed(learn, phases, "training_step")


def _timed(method: Callable[..., Any], phases: Phases, part: str) -> Callable[..., Any]:
    def timed(*args: Any, **kwargs: Any) -> Any:
        start = now()
        result = method(*args, **kwargs)
        phases.add(part, now() - start)
        return result

    return timed


TOKENS = 128  # of each completion that `time_tokens` asks for
#: What is timed: completions at once, and what is asked for besides.
ASKED: tuple[tuple[int, dict[str, Any]], ...] = (
    *((count, {}) for count in (8, 16, 32, 64, 128)),
    (64, {"detokenize": False}),
    (64, {"logprobs": None}),
    (64, {"temperature": 0.0}),
)


def time_tokens(model: Any) -> None:
    """Time an engine that one process alone has: seconds for each token, and of these the seconds of its kernels."""
    if os.environ.get("WORLD_SIZE", "1") != "1":
        return
    file, found = Path(os.environ["BENCH_FOLDER"], "tokens.json"), list[dict[str, Any]]()
    for count, more in ASKED:
        found.append({"completions": count, **more, **seconds_of_a_token(model, count, **more)})
    torch.set_num_threads(1)
    found.append({"completions": 64, "threads": 1, **seconds_of_a_token(model, 64)})
    adapter = model.load_lora("odd_lora")
    found.append({"completions": 64, "adapter": True, **seconds_of_a_token(model, 64, adapter)})
    file.write_text(json.dumps(found) + "\n")


def seconds_of_a_token(model: Any, count: int, adapter: Any = None, **more: Any) -> dict[str, float]:
    """Seconds between two tokens of `count` completions, and the seconds that the GPU computes in them."""
    from vllm import SamplingParams

    asked = {"temperature": 1.0, "logprobs": 0, "ignore_eos": True, **more}
    prompts = [{"prompt_token_ids": list(range(10, 70))}] * count

    def write(tokens: int) -> float:
        start = now()
        parameters = SamplingParams(max_tokens=tokens, **asked)
        model.fast_generate(prompts, sampling_params=parameters, lora_request=adapter, use_tqdm=False)
        return now() - start

    write(TOKENS // 8)
    whole = min(write(TOKENS), write(TOKENS))
    with profile(activities=[ProfilerActivity.CUDA]) as seen:
        write(TOKENS // 4)
    kernels = sum(each.self_device_time_total for each in seen.key_averages()) / 1e6
    return {"seconds": whole / TOKENS, "computing": kernels / (TOKENS // 4)}


def compare_server(trainer: Any) -> None:
    """Say how far a server's log-probabilities of a completion are from the model's, with its adapter and without."""
    model, generation = trainer.model.eval(), trainer.vllm_generation
    os.environ["UNSLOTH_RETURN_LOGITS"] = "1"
    for name, weight in model.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(weight, std=0.05)  # an adapter whose effect shows
    generation.sync_weights()
    prompt = trainer.processing_class("Count to 3")["input_ids"]
    given = generation.vllm_client.generate([prompt], max_tokens=24)
    completion = torch.tensor(given["completion_ids"][0], device=model.device)
    served = torch.tensor([each[0] for each in given["logprobs"][0]], device=model.device)

    def apart() -> float:
        both = torch.cat([torch.tensor(prompt, device=model.device), completion])
        with torch.no_grad():
            logits = model(input_ids=both[None]).logits[0, len(prompt) - 1 : -1].float()
        own = logits.log_softmax(-1).gather(1, completion[:, None])[:, 0]
        return float((served - own).abs().mean())

    found = {"from the model with its adapter": apart()}
    with model.disable_adapter():
        found["from the model without"] = apart()
    Path(os.environ["BENCH_FOLDER"], "server.json").write_text(json.dumps(found) + "\n")
