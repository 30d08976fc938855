"""What the benchmarks run, and how they read the results. The runs themselves need GPUs."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from benchmarks import conversion
from benchmarks.gpu import report
from benchmarks.gpu.kinds import KINDS, Job
from benchmarks.gpu.results import Facts
from benchmarks.gpu.scripts import notebook, write


@pytest.mark.parametrize("variant", ["notebook", "converted"])
@pytest.mark.parametrize("gpus", [1, 2])
def test_a_job_has_a_script_and_a_command(variant: str, gpus: int, tmp_path: Path) -> None:
    command = write(Job("dpo", variant, gpus), tmp_path)
    text = (tmp_path / "train.py").read_text()
    ast.parse(text)
    assert "get_ipython" not in text
    assert ("# %% Distributed setup" in text) == (variant == "converted")
    assert (command[:2], command[-1]) == (
        (["python", "train.py"] if gpus == 1 else ["accelerate", "launch"]),
        "train.py",
    )
    assert (f"--num_processes {gpus}" in " ".join(command)) == (gpus > 1)


@pytest.mark.parametrize("name", KINDS)
def test_the_settings_of_a_kind_are_in_its_notebook(name: str) -> None:
    text = "\n".join(cell.source for cell in notebook(name).cells if cell.cell_type == "code")
    for setting, value in KINDS[name].settings.items():
        assert re.search(rf"(?m)^ *{setting} = {re.escape(value)}(,|  #|$)", text), setting
    assert f"bench/{KINDS[name].model}" in text


def test_tables_show_speed_and_equal_losses() -> None:
    def run(seconds: float, accumulation: int, last: float) -> Facts:
        steps = [{"at": seconds * i, "step": i, "loss": 5.0} for i in range(12)]
        steps[-1]["loss"] = last
        return {"exit_code": 0, "trainings": [{"per_device": 2, "accumulation": accumulation, "steps": steps}]}

    runs = {
        "mixed_8/notebook/1": run(2.0, 4, 5.0),
        "mixed_8/script/1": run(1.0, 4, 5.0),
        "mixed_8/script/2": run(0.5, 2, 4.75),
    }
    title = KINDS["mixed_8"].title
    assert report.speed(runs).splitlines()[2:] == [
        f"| {title} | notebook | 2.00 (1.0) |  |  |",
        f"| {title} | script | 1.00 (2.0) | 0.50 (4.0) |  |",
    ]
    assert report.agreement(runs).splitlines()[2:] == [f"| {title} | script | 2 | 2.5e-01 |"]


def test_conversion_stays_near_the_parser() -> None:
    """A change that triples a conversion's time fails here. These small ones take 5 times as long as the parser."""
    notebooks = Path(__file__).parent.parent / "fixtures" / "notebooks"
    assert conversion.against_the_parser(notebooks, rounds=2)["median_times_the_parser"] < 10
