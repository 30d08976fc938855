"""One notebook of each kind trains as one process does in the versions that most public notebooks pin.

DPO is also killed as one process, and resumes as two: transformers 4 takes the per-device batch from the checkpoint.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from benchmarks.gpu.kinds import Job
from benchmarks.gpu.scripts import notebook
from nb2ddp.api import convert_file
from nb2ddp.options import Options as Converted
from nb2ddp.rehearsal.ending import End
from nb2ddp.rehearsal.plan import read
from nb2ddp.rehearsal.rehearse import Options, rehearse
from nb2ddp.rehearsal.report import text_lines
from nb2ddp.rehearsal.uv import UvError
from nb2ddp.versions import tables
from tests.pinned import environment

if TYPE_CHECKING:
    from pathlib import Path

    from nb2ddp.rehearsal.environments import Environment
    from nb2ddp.rehearsal.run import Run
    from nb2ddp.rehearsal.verdict import Event

pytestmark = [pytest.mark.e2e, pytest.mark.short]

STEPS = 3
KINDS = ("sft_3b", "grpo", "dpo", "vision", "embeddings")


@pytest.fixture(scope="module")
def pinned() -> Environment:
    """The environment, which `python -m tests` has made before."""
    try:
        return environment()
    except UvError as error:
        pytest.skip(f"the versions cannot be installed: {error}")


@pytest.mark.parametrize("kind", KINDS)
def test_two_processes_train_as_one_does(kind: str, pinned: Environment, tmp_path: Path) -> None:
    source, script = tmp_path / f"{kind}.ipynb", tmp_path / f"{kind}.py"
    source.write_text(json.dumps(notebook(Job(kind, "converted", 1))))
    resume = kind == "dpo"
    convert_file(source, script, replace(Converted(), resume=resume))
    options = Options(offline=True, steps=STEPS, ends=(End("SIGKILL", "step", 2, -1, processes=1),))
    verdict = rehearse(read(script, choose=lambda _: pinned), options)
    told = "\n".join(text_lines(verdict))
    assert not resume or verdict.rows[-1].measured.startswith("yes, after SIGKILL"), told
    logged = [[each["values"]["loss"] for each in _losses(run)] for run in (verdict.alone, verdict.job)]
    assert verdict.code == 0, told
    assert {name: pinned.versions[name] for name in ("transformers", "trl", "datasets")} == {
        name: tables()["pinned"][name] for name in ("transformers", "trl", "datasets")
    }
    assert [len(losses) for losses in logged] == [STEPS, STEPS], told


def _losses(run: Run) -> list[Event]:
    return [event for event in run.ranks[0].seen("log") if "loss" in event["values"]]
