"""Every kind of training comes to the same in one process and in two, in each set of versions.

The kinds are the notebooks that were measured on GPUs, and KTO.
DPO is also killed as one process and resumed as two: transformers 4 takes the per-device batch from the checkpoint.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from benchmarks.gpu.scripts import notebook
from nb2ddp.api import convert_file
from nb2ddp.options import Options as Converted
from nb2ddp.rehearsal.ending import End
from nb2ddp.rehearsal.environments import here
from nb2ddp.rehearsal.plan import read
from nb2ddp.rehearsal.rehearse import Options, rehearse
from nb2ddp.rehearsal.report import text_lines
from nb2ddp.rehearsal.uv import UvError
from nb2ddp.versions import SETS, tables
from tests.pinned import environment

if TYPE_CHECKING:
    from pathlib import Path

    from nb2ddp.rehearsal.environments import Environment
    from nb2ddp.rehearsal.run import Run

pytestmark = pytest.mark.e2e

STEPS = 3
#: Those of the pins that run always.
SHORT = ("sft_3b", "grpo", "dpo", "vision", "embeddings")
KINDS = (
    *SHORT,
    *("lora_16bit", "full", "packing", "cpt", "moe", "orpo", "kto", "classification", "resume"),
)
#: Those of a set that are not trained here: tests/e2e/test_fixtures_train.py trains four in the newest versions.
LEFT = {"newest": ("sft_3b", "embeddings", "full", "classification"), "pinned": ()}


def cells(kind: str, versions: str) -> str:
    """The notebook of a kind, as JSON."""
    text = json.dumps(notebook("orpo" if kind == "kto" else kind))
    if kind == "kto":
        text = text.replace("ORPO", "KTO").replace("trl.experimental.orpo", "trl")
    return text.replace("trl.experimental.orpo", "trl") if versions == "pinned" else text


def of(versions: str) -> Environment:
    """The environment of a set: `python -m tests` has made both."""
    if versions == "newest":
        return here()
    try:
        return environment()
    except UvError as error:
        pytest.skip(f"the versions cannot be installed: {error}")


@pytest.mark.parametrize(
    ("versions", "kind"),
    [
        pytest.param(versions, kind, marks=pytest.mark.short if versions == "pinned" and kind in SHORT else ())
        for versions in SETS
        for kind in KINDS
        if kind not in LEFT[versions]
    ],
)
def test_two_processes_train_as_one_does(versions: str, kind: str, tmp_path: Path) -> None:
    source, script = tmp_path / f"{kind}.ipynb", tmp_path / f"{kind}.py"
    source.write_text(cells(kind, versions))
    resume = kind == "dpo"
    convert_file(source, script, replace(Converted(), resume=resume))
    options = Options(offline=True, steps=STEPS, ends=(End("SIGKILL", "step", 2, -1, processes=1),))
    where = of(versions)
    verdict = rehearse(read(script, choose=lambda _: where), options)
    told = "\n".join(text_lines(verdict))
    assert not resume or verdict.rows[-1].measured.startswith("yes, after SIGKILL"), told
    logged = [[each["values"]["loss"] for each in _losses(run)] for run in (verdict.alone, verdict.job)]
    assert verdict.code == 0, told
    named = ("transformers", "trl", "datasets")
    assert {name: where.versions[name] for name in named} == {name: tables()[versions][name] for name in named}
    steps = STEPS + (kind == "resume")  # whose second training goes on from the checkpoint of the first
    assert [len(losses) for losses in logged] == [steps] * 2, told


def _losses(run: Run) -> list[dict[str, Any]]:
    return [event for event in run.ranks[0].seen("log") if "loss" in event["values"]]
