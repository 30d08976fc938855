"""Train notebooks of every kind of GRPO on one and two GPUs: `python -m benchmarks.grpo {write,run} FOLDER`.

`write` converts the notebooks of `CASES` into FOLDER/scripts; it needs no GPU. `run` runs jobs such as `engine-1B/2` (a
case and its number of processes) there and adds what was seen to FOLDER/grpo.json:

- the seconds of each step and of its parts (`benchmarks/grpo_phases.py`), peak memory, losses and rewards;
- a hash of each process's adapter, and the prompts and completions that each process had;
- the exit code, and the processes that were still there when the job had ended.

The models have random weights (`benchmarks/gpu/hub.py`); the reward is the share of odd token ids, which has a spread
whatever a model says.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
SITES = (ROOT / "benchmarks" / "gpu" / "site", ROOT / "tests" / "e2e" / "site", ROOT / "benchmarks")
ATTACH = "import grpo_phases\ngrpo_phases.attach(trainer)\n"

SETTINGS = (
    'import os\nos.environ["UNSLOTH_VLLM_STANDBY"] = "1"  # the engine gives its memory back while the model trains\n'
)
LOAD = """\
from unsloth import FastLanguageModel
import torch

model, tokenizer = FastLanguageModel.from_pretrained(
    model_name = "bench/{model}",
    max_seq_length = 1024,
    load_in_4bit = {four_bit},
{engine})
model = FastLanguageModel.get_peft_model(
    model,
    r = 16,
    target_modules = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"],
    lora_alpha = 32,
    use_gradient_checkpointing = "unsloth",
    random_state = 3407,
)
"""
LOAD_VISION = """\
from unsloth import FastVisionModel
import torch

model, tokenizer = FastVisionModel.from_pretrained("bench/{model}", max_seq_length = 1024, load_in_4bit = {four_bit})
model = FastVisionModel.get_peft_model(
    model,
    r = 16,
    lora_alpha = 16,
    finetune_vision_layers = False,
    random_state = 3407,
    use_gradient_checkpointing = "unsloth",
)
"""
ENGINE = """\
    fast_inference = True,
    max_lora_rank = 16,
    gpu_memory_utilization = {memory},
"""
FINE_TUNE = """\
from datasets import load_dataset
from trl import SFTConfig, SFTTrainer

trainer = SFTTrainer(
    model = model,
    tokenizer = tokenizer,
    train_dataset = load_dataset("bench/notes", split = "train"),
    args = SFTConfig(
        dataset_text_field = "text",
        per_device_train_batch_size = 2,
        gradient_accumulation_steps = 2,
        max_steps = 3,
        logging_steps = 1,
        optim = "adamw_8bit",
        seed = 3407,
        report_to = "none",
        output_dir = "sft",
    ),
)
trainer.train()
"""
DATA = """\
from datasets import load_dataset

dataset = load_dataset("bench/questions", split = "train")
dataset = dataset.map(lambda row: {"prompt": [{"role": "user", "content": row["question"]}]})
"""
DATA_VISION = """\
from datasets import load_dataset

dataset = load_dataset("bench/pictures", split = "train")
asked = [{"role": "user", "content": [{"type": "image"}, {"type": "text", "text": "What is it?"}]}]
dataset = dataset.map(lambda row: {"prompt": asked})
"""
REWARD = '''\
def odd(completion_ids, **kwargs):
    """The share of odd token ids."""
    return [sum(token % 2 for token in tokens) / len(tokens) for tokens in completion_ids]
'''
TRAIN = """\
from trl import GRPOConfig, GRPOTrainer

training_args = GRPOConfig(
{settings}    temperature = 1.0,
    learning_rate = 5e-5,
    optim = "adamw_8bit",
    logging_steps = 1,
    seed = 3407,
    report_to = "none",
    output_dir = "outputs",
)
trainer = GRPOTrainer(
    model = model,
    processing_class = tokenizer,
    reward_funcs = [odd],
    args = training_args,
    train_dataset = dataset,
)
"""
SAVE_ENGINE = """\
model.save_lora("odd_lora")
from vllm import SamplingParams
answer = model.fast_generate(
    ["Count to 3"],
    sampling_params = SamplingParams(max_tokens = 8),
    lora_request = model.load_lora("odd_lora"),
)
print("generated", len(answer[0].outputs[0].token_ids))
"""


@dataclass(frozen=True)
class Case:
    """One kind of notebook: a model, how it is loaded, and the training arguments that are its own."""

    model: str = "Llama-small"
    engine: float = 0.0  # the share of the GPU's memory for an engine; 0 for none
    standby: bool = False
    four_bit: bool = False
    vision: bool = False
    fine_tuned: bool = False  # SFT first
    resumes: bool = False  # from a checkpoint that a first training leaves
    batch: int = 4
    accumulation: int = 2
    generations: int = 4
    tokens: int = 32
    steps: int = 3
    more: dict[str, Any] = field(default_factory=dict)

    def cells(self) -> list[str]:
        """The notebook's code."""
        settings = {
            "per_device_train_batch_size": self.batch,
            "gradient_accumulation_steps": self.accumulation,
            "num_generations": self.generations,
            "max_completion_length": self.tokens,
            "max_steps": self.steps,
            **self.more,
        }
        written = "".join(f"    {name} = {value!r},\n" for name, value in settings.items())
        engine = ENGINE.format(memory=self.engine) if self.engine else ""
        load = (LOAD_VISION if self.vision else LOAD).format(model=self.model, four_bit=self.four_bit, engine=engine)
        train = "trainer.train(resume_from_checkpoint = True)\n" if self.resumes else "trainer.train()\n"
        return [
            "%%capture\n!pip install unsloth vllm",
            *([SETTINGS] if self.standby else []),
            load,
            *([FINE_TUNE] if self.fine_tuned else []),
            DATA_VISION if self.vision else DATA,
            REWARD,
            TRAIN.format(settings=written),
            train,
            SAVE_ENGINE if self.engine else 'model.save_pretrained("odd_lora")\n',
        ]


BIG: dict[str, Any] = {"batch": 16, "accumulation": 1, "generations": 8, "tokens": 256, "steps": 8}
CASES = {
    "lora-16bit": Case(),
    "lora-4bit": Case(four_bit=True),
    "vision": Case("Qwen2-VL", vision=True),
    "generations-3": Case(batch=3, generations=3),
    "one-prompt-on-two": Case(batch=1, accumulation=4),
    "steps-per-generation": Case(more={"steps_per_generation": 4}, steps=4),
    **{f"loss-{kind}": Case(more={"loss_type": kind}) for kind in ("grpo", "dr_grpo", "bnpo")},
    "gspo": Case(more={"importance_sampling_level": "sequence", "loss_type": "grpo"}),
    "kl": Case(more={"beta": 0.04}),
    "engine-small": Case(engine=0.05),
    "engine-4bit": Case("Llama-1B", engine=0.2, four_bit=True),
    "engine-1B": Case("Llama-1B", engine=0.3, **BIG),
    "engine-3B": Case("Llama-3B", engine=0.4, **BIG),
    "standby-3B": Case("Llama-3B", engine=0.4, standby=True, **BIG),
    "standby-sft": Case(engine=0.3, standby=True, fine_tuned=True),
    "checkpoint": Case(engine=0.05, steps=2, more={"save_steps": 2}),
    "resumed": Case(engine=0.05, steps=4, more={"save_steps": 2}, resumes=True),
    "no-engine-1B": Case("Llama-1B", **{**BIG, "tokens": 128, "steps": 5}),
}


def write(folder: Path) -> None:
    """Convert every case into FOLDER/scripts."""
    from nb2ddp.convert import convert_source

    (folder / "scripts").mkdir(parents=True, exist_ok=True)
    for name, case in CASES.items():
        cells: list[dict[str, Any]] = [
            {"cell_type": "code", "metadata": {}, "source": text, "outputs": [], "execution_count": None}
            for text in case.cells()
        ]
        notebook = json.dumps({"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 4})
        script = convert_source(notebook, name, f"{name}.py").files[f"{name}.py"]
        before, train, after = script.rpartition("trainer.train(")
        (folder / "scripts" / f"{name}.py").write_text(before + ATTACH + train + after)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def left(session: int) -> list[str]:
    """The processes of a job that are still there."""
    found = subprocess.run(["ps", "-s", str(session), "-o", "pid=,comm="], capture_output=True, text=True, check=False)
    return found.stdout.split("\n")[:-1]


def run(folder: Path, job: str, devices: str, seconds: float, work: Path | None = None) -> dict[str, Any]:
    """Run a job on some GPUs, for so many seconds at most.

    Args:
        folder: where the scripts and the models (`hub`) are.
        job: a case and its number of processes, such as `engine-1B/2`.
        devices: the GPUs, as `CUDA_VISIBLE_DEVICES` takes them.
        seconds: after which the job is ended.
        work: an earlier job's folder to go on in; None for a new one.
    """
    name, _, processes = job.partition("/")
    logs = folder / "runs" / job.replace("/", "-")
    work = work or logs / "work"
    work.mkdir(parents=True, exist_ok=True)
    if not (work / "bench").exists():
        (work / "bench").symlink_to(folder / "hub" / "bench")
    launched = [sys.executable, "-m", "accelerate.commands.launch", "--multi_gpu", f"--num_processes={processes}"]
    launched += [
        "--num_machines=1",
        "--mixed_precision=no",
        "--dynamo_backend=no",
        f"--main_process_port={free_port()}",
    ]
    command = [*(launched if processes != "1" else [sys.executable]), str(folder / "scripts" / f"{name}.py")]
    sites = os.pathsep.join([*map(str, SITES), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": devices, "PYTHONPATH": sites, "BENCH_FOLDER": str(logs)}
    start = time.monotonic()
    with (logs / "log").open("w") as log:
        ran = subprocess.Popen(
            command, cwd=work, env=environment, stdout=log, stderr=subprocess.STDOUT, start_new_session=True
        )
        try:
            code = ran.wait(seconds)
        except subprocess.TimeoutExpired:
            os.killpg(ran.pid, signal.SIGKILL)
            code = ran.wait()
    took = time.monotonic() - start
    time.sleep(1)
    found = {"job": job, "code": code, "seconds": round(took, 1), "left": left(ran.pid), "ranks": seen(logs)}
    if code:
        found["said"] = (logs / "log").read_text()[-3000:]
    return found


def seen(logs: Path) -> list[dict[str, Any]]:
    """What each process wrote down: the last training's steps, its weights, and the parts of each step."""
    ranks = []
    for file in sorted(logs.glob("[0-9].jsonl")):
        events = [json.loads(line) for line in file.read_text().splitlines()]
        begun = [place for place, event in enumerate(events) if event["event"] == "begin"]
        last = events[begun[-1] :] if begun else []
        phases = logs / f"{file.stem}.phases.json"
        ranks.append(
            {
                "trainings": len(begun),
                "batch": [(events[at]["per_device"], events[at]["accumulation"]) for at in begun],
                "steps": [{k: v for k, v in e.items() if k != "event"} for e in last if e["event"] == "step"],
                "weights": [event["weights"] for event in last if event["event"] in ("begin", "end")],
                "memory": next((event["reserved"] for event in last if event["event"] == "end"), None),
                "parts": json.loads(phases.read_text()) if phases.exists() else [],
            }
        )
    return ranks


def keep(folder: Path, found: dict[str, Any]) -> None:
    """Add a job's result to FOLDER/grpo.json."""
    file = folder / "grpo.json"
    results = json.loads(file.read_text()) if file.exists() else {}
    results[found["job"]] = found
    file.write_text(json.dumps(results, indent=1, default=str) + "\n")
    hashes = [rank["weights"][-1] if rank["weights"] else None for rank in found["ranks"]]
    steps = [len(rank["steps"]) for rank in found["ranks"]]
    print(found["job"], "code", found["code"], found["seconds"], "s, steps", steps, "adapters", hashes, found["left"])
    if found["code"]:
        print("   ", "\n    ".join(found.get("said", "").splitlines()[-25:]))
    sys.stdout.flush()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.grpo", description=__doc__.splitlines()[0])
    parser.add_argument("action", choices=("write", "run"))
    parser.add_argument("folder", type=Path)
    parser.add_argument(
        "jobs", nargs="*", help="CASE/PROCESSES[@GPUS][+CASE/PROCESSES...]: those joined by + run at once"
    )
    parser.add_argument("--seconds", type=float, default=200, help="for each job")
    parser.add_argument("--within", type=float, default=1e9, help="seconds in which all must be over")
    options = parser.parse_args()
    folder = options.folder.resolve()
    if options.action == "write":
        write(folder)
        return
    deadline, lock = time.monotonic() + options.within, threading.Lock()
    for wave in options.jobs:
        remaining = deadline - time.monotonic()
        if remaining < 60:
            print("no time left for", wave, flush=True)
            continue

        def do(one: str, seconds: float = min(options.seconds, remaining)) -> None:
            job, _, devices = one.partition("@")
            earlier = folder / "runs" / f"checkpoint-{job[-1]}" / "work" if job.startswith("resumed") else None
            found = run(folder, job, devices or "0,1"[: 2 * int(job[-1]) - 1], seconds, earlier)
            with lock:
                keep(folder, found)

        threads = [threading.Thread(target=do, args=(one,)) for one in wave.split("+")]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()


if __name__ == "__main__":
    main()
