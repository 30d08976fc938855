"""The instrument itself: it must see what the other end-to-end tests rely on it to see."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from .runner import Process, Step, Trainings, difference, read_steps, run

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.e2e

UNRULY = """
import os, subprocess, sys
from pathlib import Path
import torch
from safetensors.torch import save_file

rank = os.environ.get("RANK", "0")
Path(f"by_python_{rank}").write_text("x")
save_file({"x": torch.ones(1)}, f"by_rust_{rank}")
torch.save(torch.ones(1), f"by_torch_{rank}")
subprocess.run(f"mkdir folder_{rank} && echo x > folder_{rank}/by_shell", shell=True, check=True)
Path("of_all").write_text("x")
Path("..", "elsewhere").write_text("x")
print("GPU:", torch.cuda.get_device_properties(0).name)
print("said aloud", file=sys.stderr)
"""

# Where the first process ends, gloo's thread alone holds what was gathered, and still frees it.
SLOW_THREAD = """
import os, time
import torch
import torch.distributed as dist

class Slow(torch.Tensor):
    def __del__(self):
        end = time.monotonic() + 0.1
        while time.monotonic() < end:
            time.sleep(0.001)

dist.init_process_group("gloo")
group = dist.group.WORLD  # as a wrapped model holds it
time.sleep(0.05 * dist.get_rank())
dist.all_gather([torch.ones(1).as_subclass(Slow), torch.ones(1)], torch.ones(1), async_op=True)
time.sleep(0.1)
dist.destroy_process_group()
"""


def write(folder: Path, text: str) -> Path:
    script = folder / "train.py"
    script.write_text(text)
    return script


def test_each_write_has_its_rank_whoever_makes_it(tmp_path: Path) -> None:
    (tmp_path / "hub").mkdir()
    both = run(write(tmp_path, UNRULY), tmp_path / "hub", tmp_path / "run", 2)
    assert both.code == 0, both.last_words()
    own = ["by_python_{}", "by_rust_{}", "by_torch_{}", "folder_{}", "folder_{}/by_shell"]
    for rank in (0, 1):
        assert {path.format(rank): both.writers[path.format(rank)] for path in own} == {
            path.format(rank): {rank} for path in own
        }
    assert both.shared == {"of_all": {0, 1}}
    assert both.unseen == ()
    assert both.ranks[1].stdout == "GPU: No GPU\n"
    assert list(both.problems()) == [
        "rank 1 printed 'GPU: No GPU\\nsaid aloud\\n'",
        "of_all was written by several processes: [0, 1]",
        "no training step was logged",
    ]


def test_processes_end_well_while_gloo_still_frees_tensors(tmp_path: Path) -> None:
    (tmp_path / "hub").mkdir()
    both = run(write(tmp_path, SLOW_THREAD), tmp_path / "hub", tmp_path / "run", 2)
    assert both.code == 0, both.last_words()


def test_one_process_is_rank_0(tmp_path: Path) -> None:
    (tmp_path / "hub").mkdir()
    alone = run(write(tmp_path, UNRULY), tmp_path / "hub", tmp_path / "run")
    assert alone.code == 0, alone.last_words()
    assert set(alone.writers.values()) == {frozenset({0})}
    assert (alone.ranks[0].stdout, alone.ranks[0].stderr) == ("GPU: No GPU\n", "said aloud\n")


def test_a_script_that_hangs_is_stopped_with_its_children(tmp_path: Path) -> None:
    (tmp_path / "hub").mkdir()
    script = write(tmp_path, "import subprocess\nsubprocess.run(['sleep', '600'])\n")
    stopped = run(script, tmp_path / "hub", tmp_path / "run", timeout=2)
    assert stopped.code == 124
    assert stopped.seconds < 60


def test_links_into_the_hub_stay_in_the_copy(tmp_path: Path) -> None:
    (tmp_path / "hub" / "model").mkdir(parents=True)
    (tmp_path / "hub" / "alias").symlink_to(tmp_path / "hub" / "model")
    script = write(tmp_path, "open('alias/weights', 'w').close()\n")
    result = run(script, tmp_path / "hub", tmp_path / "run")
    assert result.writers == {"model/weights": {0}}
    assert not (tmp_path / "hub" / "model" / "weights").exists()


def test_steps_are_told_apart_by_training(tmp_path: Path) -> None:
    file = tmp_path / "0.jsonl"
    file.write_text(
        '{"step": 1, "loss": 5.0, "grad_norm": 0.5}\n{"step": 2, "loss": 4.0}\n'
        '{"step": 2, "train_runtime": 1.0}\n{"step": 1, "loss": 3.0, "grad_norm": "0.1"}\n'
    )
    assert read_steps(file) == ((Step(1, 5.0, 0.5), Step(2, 4.0, 0.0)), (Step(1, 3.0, 0.1),))
    assert read_steps(tmp_path / "missing.jsonl") == ()


def test_a_logged_warning_is_no_print() -> None:
    logged = [
        "[unsloth.models|WARNING]Unsloth: the token is mapped\n",
        "W1120 12:44:46.051000 18325 torch/utils/_pytree.py:630] deprecated\n",
        "/lib/peft/mixed.py:12: UserWarning: out of memory soon\n  warnings.warn(\n",
    ]
    bar = "Map:   0%|          | 0/9 [00:00<?, ?it/s]\rMap: 100%|##########| 9/9 [00:00<00:00, 9it/s]\n"
    process = Process("", bar + "".join(logged) + "Error: 1\n", ())
    assert process.warnings == logged
    assert process.printed == bar + "Error: 1\n"


def test_the_difference_is_the_largest_of_the_first_steps() -> None:
    def trained(*losses: float) -> Trainings:
        return (tuple(Step(number, loss, 1.0) for number, loss in enumerate(losses, start=1)),)

    assert difference(trained(5.0, 4.0, 3.0, 2.0), trained(5.0, 4.25, 3.0, 9.0)) == 0.25
    assert difference(trained(5.0), trained(5.0, 4.0)) == float("inf")
