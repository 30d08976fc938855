"""A TODO is above the comments of its line, or above all decorators of its function, including inserted ones."""

from __future__ import annotations

from nb2ddp.convert import convert_source
from tests.notebooks import CELLS, text

REWARD = """\
import random, time
def fast(completions, **kwargs):
    start = time.perf_counter()
    board = random.random()
    return [board * (time.perf_counter() - start) for _ in completions]
"""
TRAINS = """\
from trl import GRPOConfig, GRPOTrainer
args = GRPOConfig(num_generations = 4)
trainer = GRPOTrainer(model = model, reward_funcs = [fast], args = args)
trainer.train()
"""


def test_a_todo_stands_above_a_decorator() -> None:
    lines = convert_source(text(*CELLS[:2], REWARD, TRAINS)).files["train.py"].splitlines()
    defined = lines.index("def fast(completions, **kwargs):")
    assert lines[defined - 1].startswith("@same_draws")
    assert lines[defined - 2].startswith("# TODO[nb2ddp] DDP410: time.perf_counter measures time")


def test_a_todo_stands_above_the_comments_of_its_line() -> None:
    reads = "import json\n# Colab's rows\n# as JSON\nrows = json.load(open('/content/rows.json'))\n"
    trains = TRAINS.replace("[fast]", "[print]")
    lines = convert_source(text(*CELLS[:2], reads, trains)).files["train.py"].splitlines()
    comment = lines.index("# Colab's rows")
    assert lines[comment - 1].startswith("# TODO[nb2ddp] DDP310: '/content/rows.json' is a path")
    assert lines[comment + 1 : comment + 3] == ["# as JSON", "rows = json.load(open('/content/rows.json'))"]


def test_a_todo_stands_in_the_cell_of_its_line() -> None:
    trains = "# Fast\n" + TRAINS.replace("[fast]", "[print]")
    cells = (*CELLS[:2], "rows = 1\n# the last words", "# Colab's\nrows = open('/content/rows.json')", trains)
    script = convert_source(text(*cells)).files["train.py"]
    assert "# the last words\n\n# %%" in script
    assert "\n# TODO[nb2ddp] DDP310: '/content/rows.json' is a path" in script.partition("# the last words")[2]
