"""Rewards that draw at random, with TRL's own trainer: what each process drew at each call."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest

from nb2ddp.api import convert_file

from .runner import run

pytestmark = pytest.mark.e2e

NOTEBOOK = Path(__file__).resolve().parents[2] / "fixtures" / "notebooks" / "random_reward.ipynb"
DRAWN = "    scores = []\n    for completion in completions:\n"
LOGGED = '    print(board.numbers, file=open(f"drawn_{os.environ.get(\'RANK\', 0)}", "a"))\n'


def logging_script(path: Path) -> Path:
    """The converted notebook, which also writes down each board that its reward draws."""
    convert_file(NOTEBOOK, path)
    text = path.read_text()
    assert text.count(DRAWN) == 1
    path.write_text(text.replace(DRAWN, LOGGED + DRAWN))
    return path


def test_one_process_draws_as_the_notebook_does(hub: Path, tmp_path: Path) -> None:
    result = run(logging_script(tmp_path / "train.py"), hub, tmp_path / "one", cuda_is_cpu=True)
    assert list(result.problems()) == []
    seeds = np.random.RandomState(42)  # the seed of the training arguments, which the trainer sets at its end
    boards = [random.Random(int(seeds.randint(10000))) for _ in range(4)]
    expected = [str([board.randrange(26) for _ in range(3)]) for board in boards]
    assert (result.folder / "drawn_0").read_text().splitlines() == expected


@pytest.mark.short
def test_two_processes_draw_the_same_at_each_call_and_other_numbers_at_the_next(hub: Path, tmp_path: Path) -> None:
    result = run(logging_script(tmp_path / "train.py"), hub, tmp_path / "two", 2, cuda_is_cpu=True)
    assert list(result.problems()) == []
    drawn = [(result.folder / f"drawn_{rank}").read_text().splitlines() for rank in (0, 1)]
    assert drawn[0] == drawn[1]
    assert len(set(drawn[0])) == len(drawn[0]) == 4
