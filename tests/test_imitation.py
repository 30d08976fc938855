"""The imitation itself: each kind of fault is planted in a script, and must be found."""

from __future__ import annotations

import pytest

from tests.imitation.check import differences

SETUP = """\
# %% Distributed setup
import os
import sys

local_rank = int(os.environ.get("LOCAL_RANK", 0))
world_size = int(os.environ.get("WORLD_SIZE", 1))
is_main_process = int(os.environ.get("RANK", 0)) == 0

import unsloth
from accelerate import PartialState
from accelerate.utils import gather_object
from transformers import set_seed

set_seed(3407)


def run_once(work):
    values = gather_object([work() if is_main_process else None])
    return values[0]


def split_batch(per_device, accumulation):
    return per_device, -(-accumulation // world_size)

"""
TRAIN = """
from trl import SFTConfig, SFTTrainer

per_device_batch, accumulation = split_batch(2, 4)
trainer = SFTTrainer(args = SFTConfig(
    per_device_train_batch_size = per_device_batch, gradient_accumulation_steps = accumulation
))
trainer.train()
"""
OWN = """
from trl import SFTConfig, SFTTrainer

trainer = SFTTrainer(args = SFTConfig(per_device_train_batch_size = 2, gradient_accumulation_steps = 4))
trainer.train()
"""
END = """
PartialState().wait_for_everyone()
PartialState().destroy_process_group()
if not is_main_process:
    sys.exit()
"""
GRPO = """
from datasets import Dataset
from trl import GRPOTrainer

dataset = Dataset.from_list([{"prompt": "a", "answer": "1"}, {"prompt": "b", "answer": "2"}])
"""
CALLBACK = "from transformers import TrainerCallback\nfrom trl import SFTTrainer\n"


def found(cell: str, *cells: str) -> list[str]:
    """What is found in a script of a cell, beside its notebook's cells where they are given, as `kind: text`."""
    script = SETUP + "# %% Cell 1\n" + cell
    return [f"{difference.kind}: {difference.text}" for difference in differences(script, list(cells) or None)]


@pytest.mark.parametrize(
    "cell",
    [
        pytest.param(TRAIN + END + 'trainer.save_model("a")\nopen("b", "w").write("c")', id="all is well"),
        pytest.param(
            'if is_main_process:\n    open("a", "w").write("b")\nPartialState().wait_for_everyone()\n'
            'text = open("a").read()\nassert text == "b"' + TRAIN,
            id="written by one, read by all",
        ),
        pytest.param('rows = run_once(lambda: __import__("os").listdir("/usr"))' + TRAIN, id="asked once"),
        pytest.param('open(f"log_{local_rank}", "w").write("a")' + TRAIN, id="a file for each"),
        pytest.param('with PartialState().main_process_first():\n    print("once")' + TRAIN, id="main first"),
        pytest.param('device = f"cuda:{local_rank}"\nimport time\nstart = time.time()' + TRAIN, id="device and clock"),
        pytest.param('import requests\nrequests.get("http://127.0.0.1:80")' + TRAIN, id="a server on this machine"),
        pytest.param('os.makedirs("a", exist_ok = True)\nimport random\nn = random.random()' + TRAIN, id="seed"),
        pytest.param(
            "import asyncio\nasync def f():\n    return await unsloth.x()\nasyncio.run(f())" + TRAIN, id="async"
        ),
    ],
)
def test_finds_nothing_in_what_is_right(cell: str) -> None:
    assert found(cell) == []


@pytest.mark.parametrize(
    ("cell", "expected"),
    [
        pytest.param('open("a", "w").write("b")' + TRAIN, "both write: a", id="file"),
        pytest.param('open("/content/a", "w")' + TRAIN, "both write: outside", id="file outside of the folder"),
        pytest.param('unsloth.model.save_pretrained("a")' + TRAIN, "both write: save_pretrained", id="save"),
        pytest.param('os.mkdir("a")' + TRAIN, "stops: rank 0 of 2: FileExistsError", id="folder"),
        pytest.param('import subprocess\nsubprocess.run(["git", "x"])' + TRAIN, "both start: git x", id="program"),
        pytest.param('os.system("ls")' + TRAIN, "both start: ls", id="shell"),
        pytest.param('import requests\nrequests.get("a")' + TRAIN, "both ask: requests.get", id="service"),
        pytest.param('name = input("Who?")' + TRAIN, "both ask: a person", id="person"),
        pytest.param(
            'if is_main_process:\n    open("a", "w").write("b")\ntext = open("a").read()' + TRAIN,
            "early: rank 1 reads a before",
            id="read before written",
        ),
        pytest.param(
            "if is_main_process:\n    PartialState().wait_for_everyone()" + TRAIN,
            "parted: rank 0 calls wait",
            id="wait",
        ),
        pytest.param(TRAIN + END + "trainer.evaluate()", "parted: only rank 0 calls evaluate", id="after the end"),
        pytest.param(
            "rows = []\nif is_main_process:\n    rows.append(1)" + TRAIN,
            "differs: rows is '1 [1]' and '0 []'",
            id="rows",
        ),
        pytest.param("import glob\nfiles = os.listdir('/usr')" + TRAIN, "differs: files", id="order of files"),
        pytest.param("import time\nrows = [int(time.time())]" + TRAIN, "differs: rows", id="clock in rows"),
        pytest.param(
            "import random\nif is_main_process:\n    random.random()" + TRAIN,
            "differs: (random numbers of random)",
            id="draw",
        ),
        pytest.param(
            "import random\nrandom.seed(local_rank)" + TRAIN, "differs: (random numbers of random)", id="seed"
        ),
        pytest.param(TRAIN.replace("(2, 4)", "(2, 4, 8)"), "signature: split_batch(2, 4, 8)", id="signature"),
        pytest.param(TRAIN.replace("(2, 4)", "(2, 4, 8)"), "stops: one process: TypeError", id="call"),
        pytest.param("undefined" + TRAIN, "stops: one process: NameError", id="name"),
        pytest.param(
            CALLBACK + "class Writes(TrainerCallback):\n"
            '    def on_log(self, args, state, control, logs = None, **kwargs):\n        open("log", "a").write("x")\n'
            "trainer = SFTTrainer(callbacks = [Writes()])\ntrainer.train()",
            "both write: log",
            id="callback",
        ),
        pytest.param(
            GRPO + "import random\ndef reward(prompts, completions, answer, **kwargs):\n"
            "    return [random.random() for _ in prompts]\n"
            "GRPOTrainer(reward_funcs = [reward], train_dataset = dataset).train()",
            "draws: reward",
            id="reward that draws",
        ),
        pytest.param(
            GRPO + "def reward(prompts, completions, solution, **kwargs):\n    return [1.0] * len(prompts)\n"
            "GRPOTrainer(reward_funcs = reward, train_dataset = dataset).train()",
            "stops: one process: TypeError",
            id="reward without its column",
        ),
        pytest.param(
            "from datasets import load_dataset\n"
            'data = load_dataset("a").map(lambda row: {"n": row["a"] + str(local_rank)})\n'
            "from trl import SFTTrainer\nSFTTrainer(train_dataset = data).train()",
            "differs: (rows of the trainer)",
            id="rows of the trainer",
        ),
        pytest.param(
            CALLBACK + "class Mine(SFTTrainer):\n    def compute_loss(self, model, inputs):\n"
            "        loss = super().compute_loss(model, inputs)\n        return loss / undefined\nMine().train()",
            "stops: one process: NameError",
            id="loss",
        ),
        pytest.param("while True:\n    pass", "stops: one process: TimeLimit", id="endless"),
    ],
)
def test_finds_a_planted_fault(cell: str, expected: str) -> None:
    assert any(text.startswith(expected) for text in found(cell)), found(cell)


def test_a_script_may_stop_where_its_notebook_does() -> None:
    assert found("undefined" + TRAIN, "undefined") == []
    assert found("undefined" + TRAIN, "a = 1") != []


def test_a_script_stops_where_its_notebook_does() -> None:
    [text] = found(TRAIN, "1 / 0")
    assert text.startswith("goes on: the notebook stops in cell 1: ZeroDivisionError")


@pytest.mark.parametrize(
    ("cell", "own", "expected"),
    [
        pytest.param("n = 1" + TRAIN, "n = 2" + OWN, "changed: n is '1', in the notebook '2'", id="value"),
        pytest.param(TRAIN + END, OWN + "trainer.state", "unshown: Trainer.state", id="shown"),
        pytest.param(TRAIN + END, OWN + "print('a')", "unshown: a", id="printed"),
        pytest.param(
            TRAIN.replace("split_batch(2, 4)", "2, 4"), OWN, "batch: 16 samples a step on two processes", id="batch"
        ),
        pytest.param(TRAIN.replace("trainer.train()", ""), OWN, "untrained", id="no training"),
    ],
)
def test_finds_what_is_lost(cell: str, own: str, expected: str) -> None:
    assert any(text.startswith(expected) for text in found(cell, own)), found(cell, own)
    assert found(TRAIN + END + "print(trainer.state)", OWN + "trainer.state") == []


def test_a_stop_in_an_install_cell_is_the_installs_own() -> None:
    assert found(TRAIN, '!pip install a\nassert "b" == "c"'.replace("!", "# ")) == []
