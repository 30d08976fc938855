"""What the benchmarks run, and how they read what came back; the runs themselves need GPUs."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from benchmarks import conversion
from benchmarks.gpu import report
from benchmarks.gpu.kinds import KINDS, Job
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


def test_jobs_have_keys_of_their_own() -> None:
    assert len({job.key for job in jobs()}) == len(jobs())


@pytest.mark.parametrize("name", KINDS)
def test_the_settings_of_a_kind_are_in_its_notebook(name: str) -> None:
    text = "\n".join(cell.source for cell in notebook(name).cells if cell.cell_type == "code")
    for setting, value in KINDS[name].settings.items():
        assert re.search(rf"(?m)^ *{setting} = {re.escape(value)}(,|  #|$)", text), setting
    assert f"bench/{KINDS[name].model}" in text


def test_a_setting_that_the_notebook_lacks_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(KINDS, "dpo", KINDS["dpo"].__class__("", "dpo", "Llama-small", settings={"packing": "True"}))
    with pytest.raises(ValueError, match=r"dpo\.ipynb does not set packing"):
        notebook("dpo")


def made_up(times: list[float], losses: list[float]) -> results.Facts:
    steps = [
        {"at": at, "step": i, "loss": loss, "grad_norm": 1.0}
        for i, (at, loss) in enumerate(zip(times, losses, strict=True), start=1)
    ]
    training = {"per_device": 2, "accumulation": 4, "steps": steps, "looked": 1.0}
    return {"exit_code": 0, "seconds": times[-1] + 5.0, "trainings": [training]}


def test_figures_are_read_from_a_run_as_they_are_meant() -> None:
    at = [30.0, 40.0, *(42.0 + 2 * i for i in range(10))]  # the first steps compile
    one, other = made_up(at, [5.0] * 12), made_up(at, [5.0] * 11 + [4.75])
    assert results.step_time(one) == 2.0
    assert results.step_times(one) == [later - earlier for earlier, later in pairwise(at[4:])]  # steps 6 to 12
    assert results.difference(one, other) == 0.25
    assert report.samples_a_step(one, 4) == 2 * 4 * 4


def test_results_are_added_and_read_back(tmp_path: Path) -> None:
    file = tmp_path / "results.json"
    assert results.read(file) == {}
    results.add(file, "b/converted/1", made_up([1.0, 2.0], [3.0, 2.0]))
    results.add(file, "a/converted/1", {"exit_code": 1, "said": "it broke"})
    found = results.read(file)
    assert list(found) == ["a/converted/1", "b/converted/1"]
    assert results.summary(found["a/converted/1"]) == "it broke"
    assert "3.0000 to 2.0000" in results.summary(found["b/converted/1"])


def test_tables_show_speed_and_equal_losses() -> None:
    runs = {
        "mixed_8/notebook/1": made_up([2.0 * i for i in range(12)], [5.0] * 12),
        "mixed_8/script/1": made_up([1.0 * i for i in range(12)], [5.0] * 12),
        "mixed_8/script/2": made_up([0.5 * i for i in range(12)], [5.0] * 11 + [4.75]),
    }
    runs["mixed_8/script/2"]["trainings"][0]["accumulation"] = 2
    title = "4-bit LoRA, 7.6B, rows of mixed length, 8 samples a step"
    assert report.speed(runs).splitlines()[2:] == [
        f"| {title} | notebook | 2.00 (1.0) |  |  |",
        f"| {title} | script | 1.00 (2.0) | 0.50 (4.0) |  |",
    ]
    assert report.agreement(runs).splitlines()[2:] == [f"| {title} | script | 2 | 2.5e-01 |"]


def test_conversion_stays_near_the_parser() -> None:
    """A change that triples the time of a conversion fails here; these small notebooks take 5 times the parser."""
    notebooks = Path(__file__).parent.parent / "fixtures" / "notebooks"
    assert conversion.against_the_parser(notebooks, rounds=2)["median_times_the_parser"] < 10
