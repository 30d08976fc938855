"""What one process does for all: each rank goes on as if it had done it itself."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
SCRIPT = """
import json, os
from accelerate import PartialState
from nb2ddp.runtime.once import run_once

state = PartialState(cpu=True)

class Held(Exception):
    def __init__(self, text):
        super().__init__(text)
        self.held = lambda: text  # cannot be pickled

def ask(number):
    if number == 1:
        raise KeyError("no answer")
    if number == 2:
        raise Held("busy")
    return number

found = []
for number in range(4):
    try:
        found.append(run_once(lambda: ask(number)))
    except Exception as error:
        found.append(f"{type(error).__name__}: {error}")
with open(f"{state.process_index}.json", "w") as file:
    json.dump(found, file)
state.destroy_process_group()
"""


def test_all_ranks_get_the_same_values_and_errors(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2", "train.py"]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    ended = subprocess.run(launch, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=120, check=False)
    assert ended.returncode == 0, ended.stderr
    found = [json.loads((tmp_path / f"{rank}.json").read_text()) for rank in range(2)]
    assert found == [[0, "KeyError: 'no answer'", "RuntimeError: Held: busy", 3]] * 2
