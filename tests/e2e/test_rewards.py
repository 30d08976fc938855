"""Rewards that draw random numbers, with TRL's own trainer: the numbers that each process draws at each call."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest

from nb2ddp.api import convert_file
from nb2ddp.rehearsal.rehearse import Options, rehearse
from nb2ddp.rehearsal.report import text_lines
from tests.rehearsals import read

pytestmark = pytest.mark.e2e

NOTEBOOK = Path(__file__).resolve().parents[2] / "fixtures" / "notebooks" / "random_reward.ipynb"
DRAWN = "    scores = []\n    for completion in completions:\n"
LOGGED = '    print(board.numbers, file=open(f"drawn_{os.environ.get(\'RANK\', 0)}", "a"))\n'


def test_processes_draw_the_same_at_each_call_and_other_numbers_at_the_next(tmp_path: Path) -> None:
    script, kept = tmp_path / "train.py", tmp_path / "kept"
    convert_file(NOTEBOOK, script)
    text = script.read_text()
    assert text.count(DRAWN) == 1
    script.write_text(text.replace(DRAWN, LOGGED + DRAWN))
    verdict = rehearse(read(script), Options(offline=True, keep=kept))
    assert verdict.code == 0, "\n".join(text_lines(verdict))
    one, *both = (
        (kept / run / "work" / f"drawn_{rank}").read_text().splitlines()
        for run, rank in (("one", 0), ("2-processes", 0), ("2-processes", 1))
    )
    seeds = np.random.RandomState(42)  # the seed of the training arguments, which the trainer sets at its end
    boards = [random.Random(int(seeds.randint(10000))) for _ in one]
    assert one == [str([board.randrange(26) for _ in range(3)]) for board in boards], "it draws as the notebook does"
    assert both[0] == both[1]
    assert len(set(both[0])) == len(both[0]) == 3
