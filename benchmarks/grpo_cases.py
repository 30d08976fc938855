"""The notebooks of every kind of GRPO that are measured, and the starts that must fail: `CASES`, `STARTS`.

The models have random weights (`benchmarks/gpu/hub.py`); the reward is the share of odd token ids, which has a spread
whatever a model says.
"""

from __future__ import annotations

import json
import re
import textwrap
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

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
{more})
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

model, tokenizer = FastVisionModel.from_pretrained(
    model_name = "bench/{model}",
    max_seq_length = 1024,
    load_in_4bit = {four_bit},
{more})
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
SHORTEST = 30  # characters of the shortest question
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
COMPARE_SERVER = "import grpo_phases\ngrpo_phases.compare_server(trainer)\n"
COPIES = "\nsend_copies_of_weights()"
STREAM = "\nuse_one_stream()"
TIME_TOKENS = "import grpo_phases\ngrpo_phases.time_tokens(model)\n"


@dataclass(frozen=True)
class Case:
    """One kind of notebook: a model, how it is loaded, and the training arguments that are its own."""

    model: str = "Llama-small"
    engine: float = 0.0  # the share of the GPU's memory for an engine; 0 for none
    cache: int = 1  # GiB that the engine takes for keys and values, where jobs share a GPU and it cannot measure that
    at_once: int = 0  # completions that the engine writes at once; 0 leaves that to Unsloth
    server: int = 0  # the port of a vLLM server on the last GPU, which writes the completions
    without: str = ""  # lines that somebody took out of the script
    one_length: bool = False  # of all prompts, so that no step compiles for a new shape
    standby: bool = False
    four_bit: bool = False
    eight_bit_floats: bool = False
    vision: bool = False
    fine_tuned: bool = False  # SFT first
    resumes: bool = False  # from a checkpoint that a first training leaves
    batch: int = 4
    accumulation: int = 2
    generations: int = 4
    tokens: int = 32
    steps: int = 3
    more: dict[str, Any] = field(default_factory=dict)
    trainings: tuple[dict[str, Any], ...] = ({},)  # what each of several trainings, one after another, sets besides

    def cells(self) -> list[str]:
        """The notebook's code."""
        return [
            "%%capture\n!pip install unsloth vllm",
            *([SETTINGS] if self.standby else []),
            self.load(),
            *([FINE_TUNE] if self.fine_tuned else []),
            self.data(),
            REWARD,
            *(cell for more in self.trainings for cell in self.train(more)),
            *([COMPARE_SERVER] if self.server else []),
            SAVE_ENGINE if self.engine and not self.server else 'model.save_pretrained("odd_lora")\n',
            *([TIME_TOKENS] if self.one_length else []),
        ]

    def data(self) -> str:
        """The cell that makes the data set."""
        if self.vision:
            return DATA_VISION
        return DATA.replace('row["question"]', f'row["question"][:{SHORTEST}]') if self.one_length else DATA

    def load(self) -> str:
        """The cell that loads the model."""
        more = "    load_in_fp8 = True,\n" if self.eight_bit_floats else ""
        more += ENGINE.format(memory=self.engine) if self.engine else ""
        more += f"    max_num_seqs = {self.at_once},\n" if self.at_once else ""
        template = LOAD_VISION if self.vision else LOAD
        return template.format(model=self.model, four_bit=self.four_bit, more=more)

    def train(self, more: dict[str, Any]) -> list[str]:
        """The cells of one training."""
        settings = {
            "per_device_train_batch_size": self.batch,
            "gradient_accumulation_steps": self.accumulation,
            "num_generations": self.generations,
            "max_completion_length": self.tokens,
            "max_steps": self.steps,
            **self.more,
            **more,
        }
        written = "".join(f"    {name} = {value!r},\n" for name, value in settings.items())
        written += (
            f"    vllm_server_port = {self.server},\n    vllm_group_port = {self.server + 100},\n"
            if self.server
            else ""
        )
        train = "trainer.train(resume_from_checkpoint = True)\n" if self.resumes else "trainer.train()\n"
        return [TRAIN.format(settings=written), train]


@dataclass(frozen=True)
class Start:
    """A start that must fail: a case, and what is wrong with it."""

    case: Case
    edit: Callable[[str], str] = str  # what somebody changed in the script
    environment: Mapping[str, str] = field(default_factory=dict)
    spared: int = 0  # GiB of the last GPU that another process leaves free; 0 where none is there
    older: bool = False  # the version that vLLM says it has is 0.9.0
    without: str = ""  # folders of PYTHONPATH with this in their name are left out
    port_in_use: bool = False


def below_a_rank_test(script: str) -> str:
    """The load of the model for the main process alone."""
    load = re.search(r"(?ms)^model, tokenizer = Fast.*?^\)\n", script)
    assert load
    return script.replace(load[0], "if is_main_process:\n" + textwrap.indent(load[0], "    "))


def waiting_for_it(script: str) -> str:
    """The same, with the others waiting for it."""
    return below_a_rank_test(script).replace("\nmodel = Fast", "\nPartialState().wait_for_everyone()\nmodel = Fast", 1)


def waiting_a_minute(script: str) -> str:
    """The same, with a group of processes that gives up after a minute instead of torch's ten."""
    short = "from datetime import timedelta\nPartialState(timeout = timedelta(seconds = 60)).wait"
    return waiting_for_it(script).replace("\nPartialState().wait", f"\n{short}", 1)


def standby_set_late(script: str) -> str:
    """Standby is set after Unsloth was imported."""
    line = re.search(r'(?m)^os\.environ\["UNSLOTH_VLLM_STANDBY"\].*\n', script)
    assert line
    return re.sub(
        r"(?m)^import unsloth .*\n", lambda found: found[0] + line[0], script.replace(line[0], "", 1), count=1
    )


BIG: dict[str, Any] = {"batch": 16, "accumulation": 1, "generations": 8, "tokens": 256, "steps": 8}
LOSSES: tuple[dict[str, Any], ...] = (
    {"loss_type": "grpo"},
    {"loss_type": "dr_grpo"},
    {"loss_type": "bnpo"},
    {"loss_type": "grpo", "importance_sampling_level": "sequence"},
    {"loss_type": "dapo", "beta": 0.04},
)
#: 16, 64 and 128 completions a step, one training after another with the same engine, which writes them all at once.
SIZES: tuple[dict[str, Any], ...] = (
    {"max_steps": 12},
    {"gradient_accumulation_steps": 4},
    {"gradient_accumulation_steps": 8, "max_steps": 8},
)
LARGEST: tuple[dict[str, Any], ...] = ({"gradient_accumulation_steps": 8},)
NO_TEXTS = {"generation_kwargs": {"detokenize": False}}  # TRL makes the texts of all tokens itself
SIZED: dict[str, Any] = {**BIG, "cache": 6, "at_once": 128, "one_length": True, "trainings": SIZES}
CASES = {
    "lora-16bit": Case(),
    "lora-4bit": Case(four_bit=True),
    "vision-qwen2": Case("Qwen2-VL", vision=True),
    "vision-qwen3": Case("Qwen3-VL", vision=True),
    "generations-3": Case(batch=3, generations=3),
    "one-prompt-on-two": Case(batch=1, accumulation=4),
    "steps-per-generation": Case(more={"steps_per_generation": 4}, steps=4),
    "losses": Case(trainings=LOSSES),
    "engine-16bit": Case(engine=0.05),
    "engine-4bit": Case(engine=0.05, four_bit=True),
    "engine-fp8": Case(engine=0.05, eight_bit_floats=True),
    "engine-vision": Case("Qwen2.5-VL", engine=0.05, vision=True),
    "engine-losses": Case(engine=0.05, trainings=LOSSES),
    "engine-generations-3": Case(engine=0.05, batch=3, generations=3),
    "engine-one-prompt-on-two": Case(engine=0.05, batch=1, accumulation=4),
    "engine-steps-per-generation": Case(engine=0.05, more={"steps_per_generation": 4}, steps=4),
    "standby-sft": Case(engine=0.05, standby=True, fine_tuned=True),
    "checkpoint": Case(engine=0.05, steps=2, more={"save_steps": 2}),
    "resumed": Case(engine=0.05, steps=4, more={"save_steps": 2}, resumes=True),
    "engine-1B": Case("Llama-1B", engine=0.3, **BIG),
    "engine-3B": Case("Llama-3B", engine=0.4, **BIG),
    "sizes-1B": Case("Llama-1B", engine=0.3, **{**SIZED, "steps": 12}),
    "sizes-3B": Case("Llama-3B", engine=0.3, **SIZED),
    "no-texts-1B": Case("Llama-1B", engine=0.3, **{**SIZED, "trainings": LARGEST, "more": NO_TEXTS}),
    "server": Case(server=8000, engine=0.05, steps=6),
    "server-uncopied": Case(server=8001, engine=0.05, steps=6, without=COPIES),
    "server-own-stream": Case(server=8002, engine=0.05, steps=6, without=STREAM),
    "memory-3B": Case("Llama-3B", engine=0.35, cache=24, **{**BIG, "steps": 4}),
    "memory-3B-standby": Case("Llama-3B", engine=0.35, cache=24, standby=True, **{**BIG, "steps": 4}),
}
EXPANDABLE = {"PYTORCH_ALLOC_CONF": "expandable_segments:True"}
STARTS = {
    "start-allocator": Start(Case(engine=0.05, standby=True), environment=EXPANDABLE),
    "start-allocator-cuda": Start(
        Case(engine=0.05, standby=True), environment={"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}
    ),
    "start-standby-late": Start(Case(engine=0.05, standby=True), edit=standby_set_late),
    "start-rank-test": Start(Case(engine=0.05), edit=below_a_rank_test),
    "start-rank-test-waited": Start(Case(engine=0.05), edit=waiting_for_it, environment={"UNSLOTH_DDP_TIMEOUT": "60"}),
    "start-rank-test-minute": Start(
        Case(engine=0.05), edit=waiting_a_minute, environment={"UNSLOTH_DDP_TIMEOUT": "60"}
    ),
    "start-memory-of-one": Start(Case(engine=0.4), spared=1),
    "start-memory-of-one-standby": Start(Case(engine=0.4, standby=True), spared=1),
    "start-older-vllm": Start(Case(engine=0.05), older=True),
    "start-no-vllm": Start(Case(engine=0.05), without="vllm"),
    "start-port": Start(Case(), port_in_use=True),
}


def write(folder: Path) -> None:
    """Convert every case into FOLDER, and write the starts that must fail beside them."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, case in CASES.items():
        (folder / f"{name}.py").write_text(script(name, case))
    for name, start in STARTS.items():
        (folder / f"{name}.py").write_text(start.edit(script(name, start.case)))


def script(name: str, case: Case) -> str:
    """The script of a case, with what it does in each GRPO step written down."""
    from nb2ddp.convert import convert_source
    from nb2ddp.options import Launch, Options

    cells: list[dict[str, Any]] = [
        {"cell_type": "code", "metadata": {}, "source": text, "outputs": [], "execution_count": None}
        for text in case.cells()
    ]
    notebook = json.dumps({"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 4})
    options = Options(Launch(1), vllm_server=True) if case.server else None
    converted = convert_source(notebook, name, f"{name}.py", options).files[f"{name}.py"]
    assert case.without in converted
    converted = converted.replace(case.without, "")
    sft, grpo, rest = converted.partition("from trl import GRPOConfig")
    return sft + grpo + rest.replace("\ntrainer.train(", f"\n{ATTACH}trainer.train(")
