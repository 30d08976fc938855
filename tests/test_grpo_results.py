"""What docs/grpo.md says of measured runs, looked up in benchmarks/results/grpo.json."""

from __future__ import annotations

import json
from pathlib import Path
from statistics import median
from typing import Any

import pytest

from benchmarks import grpo_tables
from benchmarks.grpo_replay import apart

ROOT = Path(__file__).resolve().parents[1]
RESULTS: dict[str, Any] = json.loads((ROOT / "benchmarks" / "results" / "grpo.json").read_text(encoding="utf-8"))
PAGE = (ROOT / "docs" / "grpo.md").read_text(encoding="utf-8")
ROWS = [[cell.strip() for cell in line.split("|")] for line in PAGE.splitlines() if line.startswith("|")]
#: Where the trainer draws by itself which completions share a micro-batch or a step.
DRAWN = {"bnpo", "two steps a generation"}
#: On GPUs Unsloth's gradient norms differ by more than its losses.
WITHIN = {"trl": 1e-6, "unsloth": 1e-6, "unsloth on GPUs": 1e-3}
SEVERAL = [job for job in RESULTS["jobs"] if not job.endswith("/1")]
ONCE_MORE = [job for job in RESULTS["once_more"] if job.endswith("/2")]


@pytest.mark.parametrize("library", RESULTS["replay"])
def test_several_processes_learn_what_one_does(library: str) -> None:
    runs = RESULTS["replay"][library]
    assert set(runs["commands"]) >= {"1", "2"}
    for processes in set(runs["commands"]) - {"1"}:
        found = apart(runs["1"], runs[processes])
        assert found
        for name, figures in found.items():
            alike = [value for figure, value in figures.items() if name not in DRAWN or "reward" in figure]
            assert max(alike) < WITHIN[library], (name, figures)
            assert figures["advantages"] == 0


@pytest.mark.parametrize("job", RESULTS["jobs"])
def test_jobs_end_well(job: str) -> None:
    run = RESULTS["jobs"][job]
    assert (run["code"], run["left"]) == (0, [])
    assert run["call"] in RESULTS["calls"]


@pytest.mark.parametrize("job", SEVERAL)
def test_processes_have_the_same_adapter_and_the_prompts_of_one(job: str) -> None:
    run, alone = RESULTS["jobs"][job], RESULTS["jobs"][f"{job[:-1]}1"]
    for number, training in enumerate(alone["ranks"][0]):
        parts = [rank[number] for rank in run["ranks"]]
        assert len({part["weights"][-1] for part in parts}) == 1
        assert len(parts[0]["steps"]) == len(training["steps"])
        for step, one in enumerate(training["parts"]):
            prompts, completions = (
                [each for part in parts for each in part["parts"][step].get(name, [])]
                for name in ("prompts", "completions")
            )
            assert sorted(prompts) == sorted(one.get("prompts", []))
            assert len(set(completions)) == len(completions) == len(one.get("completions", []))


def test_resumed_trainings_begin_where_the_checkpoint_ended() -> None:
    for processes in "12":
        for rank in RESULTS["jobs"][f"resumed/{processes}"]["ranks"]:
            assert (rank[0]["done"], [step["step"] for step in rank[0]["steps"]]) == (2, [3, 4])


@pytest.mark.parametrize("job", RESULTS["sizes"])
def test_page_has_the_seconds_of_a_step(job: str) -> None:
    name, _, processes = job.partition("/")
    trainings = [training for training in RESULTS["sizes"][job]["ranks"][0] if training["parts"]]
    assert len(trainings) >= 2
    for training in trainings:
        completions = int(processes) * training["batch"][0] * training["batch"][1]
        seconds = median(part["whole"] for part in training["parts"][2:])
        row = next((row for row in ROWS if row[1:3] == [name.removeprefix("sizes-"), str(completions)]), [])
        assert f"{seconds:.2f}" == row[2 + int(processes)]


@pytest.mark.parametrize("job", RESULTS["memory"])
def test_page_has_the_memory_of_an_engine_with_standby_and_without(job: str) -> None:
    step = RESULTS["memory"][job]["steps"][-1]
    assert f"{step['mib_learning'] / 1024:.1f}" in PAGE
    assert f"{step['seconds']:.2f}" in PAGE


def test_starts_that_fail_leave_no_process() -> None:
    for name, start in RESULTS["starts"].items():
        assert start.get("left", []) == [], name
        for said in start["said"] if start.get("code") else ():
            assert said.partition(": ")[2][:40] in PAGE, name


@pytest.mark.parametrize("job", ONCE_MORE)
def test_other_kinds_train_on_two_gpus_as_on_one(job: str) -> None:
    name = job.partition("/")[0]
    one, two = (RESULTS["once_more"][f"{name}/{processes}"] for processes in "12")
    assert (one["code"], two["code"], one["left"], two["left"]) == (0, 0, [], [])
    assert len({rank[0]["weights"][-1] for rank in two["ranks"]}) == 1
    steps = zip(one["ranks"][0][0]["steps"], two["ranks"][0][0]["steps"], strict=True)
    apart_by = max(abs(a["loss"] - b["loss"]) for a, b in steps)
    assert apart_by < 2e-3


@pytest.mark.parametrize("job", RESULTS["server"])
def test_page_has_what_a_server_holds(job: str) -> None:
    run, name = RESULTS["server"][job], job.partition("/")[0]
    row = next(line for line in PAGE.splitlines() if f"(`{name}`)" in line)
    assert f"| code {run['code']} " in row
    assert run["left"] == []
    for distance in run.get("served", {}).values():
        assert f"| {distance:.3f} |" in row


@pytest.mark.parametrize("job", RESULTS["no_texts"])
def test_page_has_the_seconds_of_a_step_without_texts(job: str) -> None:
    run = RESULTS["no_texts"][job]
    assert run["code"] == 0
    assert len({rank[0]["weights"][-1] for rank in run["ranks"]}) == 1
    assert f"{median(part['whole'] for part in run['ranks'][0][0]['parts'][2:]):.2f} s" in PAGE


@pytest.mark.parametrize("name", grpo_tables.TABLES)
def test_every_table_can_be_printed(name: str) -> None:
    head, rule, *rows = grpo_tables.TABLES[name]().splitlines()
    assert rows
    assert {line.count(" | ") for line in (head, rule, *rows)} == {head.count(" | ")}
