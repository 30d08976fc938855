"""One process computes a value, and all processes get it."""

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
from nb2ddp.runtime.once import run_once, run_once_in_try, run_once_on_each_machine

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

rank = state.process_index
found = [run_once(lambda: rank), run_once_on_each_machine(lambda: rank)]
for number in range(4):
    try:
        found.append(run_once_in_try(lambda: ask(number), run_once if number < 2 else run_once_on_each_machine))
    except Exception as error:
        found.append(f"{type(error).__name__}: {error}")
with open(f"{state.process_index}.json", "w") as file:
    json.dump(found, file)
state.destroy_process_group()
"""


FAILING = """
from accelerate import PartialState
from nb2ddp.runtime.once import run_once

PartialState(cpu=True)
run_once(lambda: 1 / 0)
"""


def launched(folder: Path, script: str) -> subprocess.CompletedProcess[str]:
    (folder / "train.py").write_text(script)
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2", "train.py"]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run(launch, cwd=folder, env=env, capture_output=True, text=True, timeout=120, check=False)


def test_an_error_of_the_main_process_ends_the_job(tmp_path: Path) -> None:
    ended = launched(tmp_path, FAILING)
    assert ended.returncode == 1
    assert "ZeroDivisionError" in ended.stderr


def test_all_processes_get_the_same_values_and_errors(tmp_path: Path) -> None:
    ended = launched(tmp_path, SCRIPT)
    assert ended.returncode == 0, ended.stderr
    found = [json.loads((tmp_path / f"{rank}.json").read_text()) for rank in range(2)]
    assert found == [[0, 0, 0, "KeyError: 'no answer'", "RuntimeError: Held: busy", 3]] * 2
