"""What the benchmarks run, and how they read what came back; the runs themselves need GPUs."""

from __future__ import annotations

import ast
import json
import re
import threading
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from benchmarks import conversion, rehearsals
from benchmarks.gpu import report, results
from benchmarks.gpu.kinds import KINDS, Job, jobs
from benchmarks.gpu.schedule import Task, run
from benchmarks.gpu.scripts import notebook, write
from nb2ddp.runtime.memory import MEASURED_MODELS

SECONDS = 60.0


def sources(job: Job) -> str:
    return "\n".join(cell.source for cell in notebook(job).cells if cell.cell_type == "code")


def number(name: str, text: str) -> int:
    return int(re.findall(rf"{name} = (\d+)", text)[0])


@pytest.mark.parametrize("job", jobs(), ids=lambda job: job.key)
def test_every_job_has_a_script_and_a_command(job: Job, tmp_path: Path) -> None:
    command = write(job, tmp_path)
    text = (tmp_path / "train.py").read_text()
    ast.parse(text)
    assert "train.py" in command
    assert ("accelerate" in command) == (job.gpus > 1)
    assert (f"--num_processes {job.gpus}" in " ".join(command)) == (job.gpus > 1)
    assert ("def split_share" in text or "def share_batches" in text) == (job.variant in ("converted", "nudged"))
    assert (tmp_path / "accelerate_config.yaml").exists() == (job.variant in ("converted", "nudged"))
    assert "get_ipython" not in text
    assert Job.of(job.key) == job


@pytest.mark.parametrize("name", KINDS)
def test_the_settings_of_a_kind_are_in_its_notebook(name: str) -> None:
    text = sources(Job(name, "converted", 1))
    for setting, value in KINDS[name].settings.items():
        assert re.search(rf"(?m)^ *{setting} = {re.escape(value)}(,|  #|$)", text), setting
    assert f"bench/{KINDS[name].model}" in text


def test_a_setting_that_the_notebook_lacks_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(KINDS, "dpo", KINDS["dpo"].__class__("", "dpo", "Llama-small", settings={"packing": "True"}))
    with pytest.raises(ValueError, match=r"dpo\.ipynb does not set packing"):
        notebook(Job("dpo", "converted", 1))


@pytest.mark.parametrize("name", ["sft_3b", "sft_8b"])
def test_the_rivals_have_the_global_batch_of_the_notebook(name: str, tmp_path: Path) -> None:
    text = sources(Job(name, "converted", 1))
    size, steps = number("per_device_train_batch_size", text), number("gradient_accumulation_steps", text)
    write(Job(name, "exported_equal", 4), tmp_path)
    exported = (tmp_path / "train.py").read_text()
    assert 4 * number("gradient_accumulation_steps", exported) * size == steps * size
    command = write(Job(name, "handwritten", 4), tmp_path)
    assert f"--per-device={size}" in command
    assert f"--accumulation={steps // 4}" in command


def test_tasks_wait_for_gpus_and_for_what_they_need() -> None:
    begun: list[str] = []
    busy: set[str] = set()
    lock = threading.Lock()

    def task(name: str, gpus: int, *needs: str, makes: str = "") -> Task:
        def do(devices: list[str]) -> bool:
            with lock:
                assert len(devices) == gpus
                assert not busy & set(devices)
                busy.update(devices)
                begun.append(name)
            with lock:
                busy.difference_update(devices)
            return name != "broken"

        return Task(do, gpus, frozenset(needs), makes)

    run(
        [
            task("use", 1, "model"),
            task("build", 1, makes="model"),
            task("broken", 1, makes="other"),
            task("never", 1, "other"),
            task("both", 2, "model"),
            Task(lambda _: True, 1, seconds=2 * SECONDS),  # more than there is
        ],
        ["0", "1"],
        SECONDS,
    )
    assert sorted(begun) == ["both", "broken", "build", "use"]
    assert begun.index("build") < begun.index("use")


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
    assert results.outside(one) == one["seconds"] - 12 * 2.0 - 1.0
    assert report.rate(one, 4) == 2 * 4 * 4 / 2.0


def test_results_are_added_and_read_back(tmp_path: Path) -> None:
    file = tmp_path / "results.json"
    assert results.read(file) == {}
    results.add(file, "b/converted/1", made_up([1.0, 2.0], [3.0, 2.0]))
    results.add(file, "a/converted/1", {"exit_code": 1, "said": "it broke"})
    found = results.read(file)
    assert list(found) == ["a/converted/1", "b/converted/1"]
    assert results.summary(found["a/converted/1"]) == "it broke"
    assert "3.0000 to 2.0000" in results.summary(found["b/converted/1"])


@pytest.mark.parametrize("page", report.PAGES, ids=lambda page: page.name)
def test_a_page_shows_the_results(page: Path) -> None:
    assert report.filled(page) == page.read_text(encoding="utf-8"), "stale: python -m benchmarks.gpu.report"
    with pytest.raises(ValueError, match="no place for the table"):
        report.fill("", {}, report.TABLES)


def test_the_page_about_speed_is_one_page() -> None:
    lines = report.PAGE.read_text(encoding="utf-8").splitlines()
    rows = [line for line in lines if line.startswith("|")]
    assert len(rows) - len(("head", "rule")) <= 15
    assert len(" ".join(line for line in lines if line not in rows).split()) <= 900


@pytest.mark.parametrize("name", report.TABLES)
def test_every_table_can_be_printed(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["report", name])
    assert report.main() == 0
    assert len(capsys.readouterr().out.splitlines()) > 6


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


#: Every measured training without checkpointing of a model that scripts choose it for: the model, and the run.
KEPT = [
    pytest.param(model, run, id=f"{model['model'][6:]}-{model['precision']}-{run['rows']}x{run['tokens']}-{number}")
    for number, model in enumerate(json.loads(report.MEMORY.read_text(encoding="utf-8"))["models"])
    for run in model["runs"]
    if not model["checkpointing"] and model["type"] in MEASURED_MODELS
]


@pytest.mark.parametrize(("model", "run"), KEPT)
def test_what_a_script_reckons_with_held(model: dict[str, Any], run: dict[str, Any]) -> None:
    """Never too low and at most 1.5 times too high."""
    assert 1 <= report.estimate(model, run) / (run["peak"] - run["before"]) <= 1.5


def test_conversion_stays_near_the_parser() -> None:
    """A change that triples the time of a conversion fails here; these small notebooks take 5 times the parser."""
    notebooks = Path(__file__).parent.parent / "fixtures" / "notebooks"
    assert conversion.against_the_parser(notebooks, rounds=2)["median_times_the_parser"] < 10
