"""Which processes run each step of a notebook, when, and with which effects: a table for each notebook."""

from __future__ import annotations

import pytest

from nb2ddp.facts.execution import Phase
from nb2ddp.facts.program import Program
from nb2ddp.options import Options
from tests.notebooks import example_notebook


def program(code: str) -> Program:
    return Program(example_notebook(code), Options())


def table(code: str) -> str:
    """Return the steps of a notebook, one per line: call, phase, effects, processes, and `JOINT` if collective."""
    made = program(code)
    rows = []
    for call in made.tree.of(__import__("libcst").Call):
        phase, does, who = made.execution.phase(call), made.execution.does(call), made.execution.who(call)
        form = made.form(call)
        text = f"!{form.text}" if form is not None else f"{made.tree.text(call.func)}()"
        joint = "JOINT" if made.training.is_collective(call) else ""
        words = [phase.name or "NEVER", does.name or "-", who.name, joint]
        rows.append(f"{text:<24} {' '.join(words)}".rstrip())
    return "\n".join(rows) + "\n"


SPECIFICATION = {
    "phases": (
        """\
!pip install unsloth
# %%
rows = load()
if False:
    rows = other()
trainer = SFTTrainer(model)
trainer.train()
# %%
rows.clear()
grpo = GRPOTrainer(model, reward_funcs = [lambda completions: score(completions)])
grpo.train()
# %%
model.save_pretrained("lora")
""",
        """\
!pip install unsloth     INSTALL RUN EVERY
load()                   BEFORE - EVERY
other()                  DEAD - EVERY
SFTTrainer()             BEFORE - EVERY
trainer.train()          BEFORE - EVERY JOINT
rows.clear()             BETWEEN CHANGE EVERY
GRPOTrainer()            BETWEEN - EVERY
score()                  DURING - EVERY
grpo.train()             BETWEEN - EVERY JOINT
model.save_pretrained()  AFTER SAVE EVERY
""",
    ),
    "functions run where they are used": (
        """\
def once(): prepare()
def twice(): look()
def never(): forget()
def deeper(): once()
deeper()
twice()
trainer = SFTTrainer(model)
trainer.train()
twice()
""",
        """\
prepare()                BEFORE - EVERY
look()                   BEFORE|AFTER - EVERY
forget()                 NEVER - EVERY
once()                   BEFORE - EVERY
deeper()                 BEFORE - EVERY
twice()                  BEFORE - EVERY
SFTTrainer()             BEFORE - EVERY
trainer.train()          BEFORE - EVERY JOINT
twice()                  AFTER - EVERY
""",
    ),
    "what a trainer calls": (
        """\
from functools import partial
from transformers import TrainerCallback
from trl import GRPOTrainer
def helper(text): return measure(text)
def first(completions, **kwargs): return [helper(c) for c in completions]
def make(scale):
    def inner(completions, **kwargs): return weigh(completions, scale)
    return inner
def chat(row): return render(row)
class Watch(TrainerCallback):
    def on_step_end(self, *args, **kwargs): note()
class Rows:
    def __getitem__(self, index): return read(index)
funcs = [first, make(2)]
trainer = GRPOTrainer(
    model, funcs, None, Rows(), formatting_func = chat,
    data_collator = partial(collate, pad = pad_id()),
)
trainer.train()
""",
        """\
measure()                DURING - EVERY
helper()                 DURING - EVERY
weigh()                  DURING - EVERY
render()                 BEFORE - EVERY
note()                   DURING - EVERY
read()                   BEFORE|DURING - EVERY
make()                   BEFORE - EVERY
GRPOTrainer()            BEFORE - EVERY
Rows()                   BEFORE - EVERY
partial()                BEFORE - EVERY
pad_id()                 BEFORE - EVERY
trainer.train()          BEFORE - EVERY JOINT
""",
    ),
    "what calls do": (
        """\
import json, os, random, subprocess, time, urllib.request, requests, tempfile
from huggingface_hub import snapshot_download
open("a")
open("a", "w")
json.dump({}, f)
urllib.request.urlretrieve(u, "x")
snapshot_download("a/b")
snapshot_download("a/b", local_dir = "c")
kagglehub.load_dataset(adapter, "a/b")
kagglehub.dataset_upload("a/b", "c")
requests.get(u)
subprocess.run("make", shell = True)
subprocess.run(["nvidia-smi"])
!git clone u
!ls
random.random()
random.seed(1)
time.time()
os.listdir("a")
model.generate(x, do_sample = True)
print(1)
folder = tempfile.mkdtemp()
os.mkdir(folder + "/a")
trainer.train()
""",
        """\
open()                   BEFORE - EVERY
open()                   BEFORE WRITE EVERY
json.dump()              BEFORE WRITE EVERY
urllib.request.urlretrieve() BEFORE FETCH EVERY
snapshot_download()      BEFORE - EVERY
snapshot_download()      BEFORE FETCH EVERY
kagglehub.load_dataset() BEFORE FETCH EVERY
kagglehub.dataset_upload() BEFORE SAVE EVERY
requests.get()           BEFORE ASK EVERY
subprocess.run()         BEFORE RUN EVERY
subprocess.run()         BEFORE - EVERY
!git clone u             BEFORE RUN EVERY
!ls                      BEFORE - EVERY
random.random()          BEFORE DRAW EVERY
random.seed()            BEFORE SEED EVERY
time.time()              BEFORE CLOCK EVERY
os.listdir()             BEFORE LIST EVERY
model.generate()         BEFORE DRAW EVERY
print()                  BEFORE TELL EVERY
tempfile.mkdtemp()       BEFORE - EVERY
os.mkdir()               BEFORE - EVERY
trainer.train()          BEFORE - EVERY JOINT
""",
    ),
    "who": (
        """\
import os
from accelerate import Accelerator
acc = Accelerator()
first = int(os.environ.get("LOCAL_RANK", 0)) == 0
if first: a()
if acc.process_index == 0: b()
else: c()
with acc.local_main_process_first(): d()
@acc.on_main_process
def log(): e()
log()
if len(rows) == 0: g()
trainer.train()
""",
        """\
Accelerator()            BEFORE - EVERY
int()                    BEFORE - EVERY
os.environ.get()         BEFORE - EVERY
a()                      BEFORE - MACHINE
b()                      BEFORE - MAIN
c()                      BEFORE - MAIN
acc.local_main_process_first() BEFORE - EVERY
d()                      BEFORE - MACHINE
e()                      BEFORE - MAIN
log()                    BEFORE - EVERY
len()                    BEFORE - EVERY
g()                      BEFORE - EVERY
trainer.train()          BEFORE - EVERY JOINT
""",
    ),
}


@pytest.mark.parametrize("name", SPECIFICATION)
def test_specification(name: str) -> None:
    code, expected = SPECIFICATION[name]
    assert table(code) == expected


def test_a_query_forgets_nothing() -> None:
    made = program("!pip install x\n# %%\nif False:\n    a()\na()\ntrainer.train()\na()\n")
    execution, tree = made.execution, made.tree
    assert [tree.text(call) for call in execution.calls("a")] == ["a()", "a()"]
    assert len(execution.calls("a", phase=Phase.TOGETHER)) == 1
    assert len(execution.calls("a", phase=Phase.AFTER)) == 1


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("import time\nx = time.time()\ny = x + 1\nuse(y)\n", ["time.time()"]),
        ("import uuid\nname = f'run-{uuid.uuid4()}'\nuse(name)\n", ["uuid.uuid4()"]),
        ("import wandb\nrun = wandb.init()\nuse(run.name)\n", ["run.name"]),
        ("x = x + 1\nx = partial(x)\nuse(x)\n", []),
        ("use(3)\n", []),
    ],
)
def test_what_differs_between_processes(code: str, expected: list[str]) -> None:
    made = program(code)
    (use,) = made.execution.calls("use")
    assert [made.tree.text(node) for node in made.execution.unlike(use.args[0])] == expected
