"""What is said of a function stands above all of its decorators, those that rules insert included."""

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
    assert lines[defined - 2].startswith("# TODO[nb2ddp] DDP410: its reward is a time")
