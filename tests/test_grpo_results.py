"""What docs/grpo.md says of measured runs, looked up in benchmarks/results/grpo.json."""

from __future__ import annotations

import json
from pathlib import Path
from statistics import median
from typing import Any

import pytest

from benchmarks.grpo_replay import apart

ROOT = Path(__file__).resolve().parents[1]
RESULTS: dict[str, Any] = json.loads((ROOT / "benchmarks" / "results" / "grpo.json").read_text(encoding="utf-8"))
PAGE = (ROOT / "docs" / "grpo.md").read_text(encoding="utf-8")
#: Where the trainer draws by itself which completions share a micro-batch or a step.
DRAWN = {"bnpo", "two steps a generation"}


@pytest.mark.parametrize("library", RESULTS["replay"])
def test_several_processes_learn_what_one_does(library: str) -> None:
    runs = RESULTS["replay"][library]
    assert set(runs["commands"]) >= {"1", "2"}
    for processes in set(runs["commands"]) - {"1"}:
        found = apart(runs["1"], runs[processes])
        assert found
        for name, figures in found.items():
            alike = [value for figure, value in figures.items() if name not in DRAWN or "reward" in figure]
            assert max(alike) < 1e-6, (name, figures)
            assert figures["advantages"] == 0


@pytest.mark.parametrize("job", RESULTS["jobs"])
def test_processes_end_well_with_the_same_adapter_and_the_prompts_of_one(job: str) -> None:
    run, alone = RESULTS["jobs"][job], RESULTS["jobs"][f"{job[:-1]}1"]
    assert (run["code"], run["left"]) == (0, [])
    assert len({rank["weights"][-1] for rank in run["ranks"]}) == 1
    for step, parts in enumerate(alone["ranks"][0]["parts"]):
        prompts = [prompt for rank in run["ranks"] for prompt in rank["parts"][step]["prompts"]]
        assert sorted(prompts) == sorted(parts["prompts"])
        completions = [each for rank in run["ranks"] for each in rank["parts"][step]["completions"]]
        assert len(set(completions)) == len(completions) == 16


@pytest.mark.parametrize("job", RESULTS["jobs"])
def test_page_has_the_seconds_of_a_step(job: str) -> None:
    parts = RESULTS["jobs"][job]["ranks"][0]["parts"][3:]
    assert f"| {job[-1]} | {median(part['whole'] for part in parts):.2f} |" in PAGE
