"""What the benchmarks run, and how they read what came back; the runs themselves need GPUs."""

from __future__ import annotations

import ast
import re
from itertools import pairwise
from pathlib import Path

import pytest

from benchmarks import conversion, rehearsals, tables
from benchmarks.gpu import report, results
from benchmarks.gpu.kinds import KINDS, Job, jobs
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


def test_jobs_have_keys() -> None:
    assert [Job.of(job.key) for job in jobs()] == jobs()


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


def test_both_tables_are_printed(capsys: pytest.CaptureFixture[str]) -> None:
    report.main()
    speed, agreement = capsys.readouterr().out.split("\n\n")
    assert len(speed.splitlines()) > 12
    assert len(agreement.splitlines()) > 40


def test_a_page_without_a_place_for_a_table_is_an_error() -> None:
    page = "<!-- a -->\nold\n<!-- end -->\n"
    assert tables.fill(page, 1, {"a": "{} new".format}) == "<!-- a -->\n1 new\n<!-- end -->\n"
    with pytest.raises(ValueError, match="no place for the table b"):
        tables.fill(page, 1, {"b": str})


def test_what_rehearsals_came_to_is_told_in_tables() -> None:
    ready = {"code": 0, "converts": True, "verdict": "ready", "seconds": 40.0, "processor": 30.0}
    late = ready | {"seconds": 130.0}
    failed = ready | {"code": 2, "verdict": "could not be rehearsed: x", "first": {"text": "KeyError: 'theirs'"}}
    but, given, no = (
        ready | {"code": 3},
        failed | {"gives": True, "typed": 0},
        {"code": 2, "converts": False, "verdict": "no"},
    )
    kept = {"sample": dict(zip("abcdef", (ready, late, failed, but, given, no), strict=True))}
    assert rehearsals.summary(kept).splitlines()[2:] == [
        "| public notebooks, 60 drawn by a seed | 5 | 2 (40%) | 1 | 1 | 1 | 0 | 1 | 85 / 130 |"
    ]
    name, told = rehearsals.nameless("c", failed)
    assert (told["error"], "theirs" in str(told), name == "c") == ("KeyError", False, False)


def test_the_kinds_that_ran_on_gpus_are_notebooks_to_rehearse(tmp_path: Path) -> None:
    rehearsals.write_kinds(tmp_path)
    assert {path.stem for path in tmp_path.glob("*.ipynb")} == set(KINDS)


def test_conversion_stays_near_the_parser() -> None:
    """A change that triples the time of a conversion fails here; these small notebooks take 5 times the parser."""
    notebooks = Path(__file__).parent.parent / "fixtures" / "notebooks"
    assert conversion.against_the_parser(notebooks, rounds=2)["median_times_the_parser"] < 10
