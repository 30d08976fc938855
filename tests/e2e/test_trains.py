"""Notebooks of every kind, converted and rehearsed with one process and with two.

Some run with the newest versions, some with the versions that most public notebooks pin. Some resume: they end early
with one number of processes and continue with another, with the losses of an uninterrupted training.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest

from benchmarks.gpu.scripts import notebook
from nb2ddp.api import convert_file
from nb2ddp.options import Options as Converted
from nb2ddp.rehearsal.environments import here
from nb2ddp.rehearsal.rehearse import Options, rehearse
from nb2ddp.rehearsal.report import text_lines
from nb2ddp.rehearsal.stage.events import Trained
from nb2ddp.rehearsal.uv import UvError
from nb2ddp.versions import tables
from tests.e2e.ending import End, goes_on, logged
from tests.pinned import environment
from tests.rehearsals import read

if TYPE_CHECKING:
    from nb2ddp.rehearsal.environments import Environment

pytestmark = pytest.mark.e2e

FIXTURES = Path(__file__).resolve().parents[2] / "fixtures"
#: Ends of one, two and four processes: each job is killed or asked to end, and continues with another number of them.
FOUR_ENDS = (
    End("SIGKILL", "step", 2, -1, processes=1),
    End("SIGTERM", "step", 2, -1, processes=1),
    End("SIGKILL", "saved", 3, 1, processes=2),
    End("SIGTERM", "step", 3, -1, processes=4),
)
ENDS_OF_TWO = tuple(replace(end, processes=2) for end in FOUR_ENDS[1:3])


class Case(NamedTuple):
    """A notebook of the project or of a benchmark, its versions, the file it saves, its trainings and early ends."""

    source: str
    versions: str = "newest"
    saved: str = ""
    trainings: int = 1
    ends: tuple[End, ...] = ()


#: The losses of a case with `ENDS_OF_TWO` depend on the number of processes: its second training begins with rounded
#: weights. A classifier does not end early: its made-up rows get their labels from a run of one process, and a job
#: that ends early has no such run.
CASES = {
    "text": Case("alpaca", saved="alpaca_lora/adapter_model.safetensors", ends=FOUR_ENDS),
    "two trainings": Case(
        "two_trainings", saved="stories_lora/adapter_model.safetensors", trainings=2, ends=ENDS_OF_TWO
    ),
    "classification": Case("classification", saved="reviews_model/model.safetensors"),
    "sentence embeddings": Case("sentence_embeddings", saved="questions_model/model.safetensors"),
    "generation before training": Case("generation_before_training", saved="quotes_lora/adapter_model.safetensors"),
    "save and reload": Case("save_and_reload", saved="answers_lora/adapter_model.safetensors"),
    "grpo": Case("grpo", ends=FOUR_ENDS[:1]),
    "dpo": Case("dpo"),
    "vision": Case("vision"),
    "experts": Case("moe"),
    "packing": Case("packing"),
    "stream": Case("sft_stream"),
    "stream of prompts": Case("grpo_stream"),
    "seed of the clock": Case("clock_seed"),
    "rows of libraries that draw for themselves": Case("made_up_rows"),
    "server on another GPU": Case("second_gpu"),
    "batch by free memory": Case("free_memory"),
    "prepared model": Case("prepared_model"),
    "engine after training": Case("vllm_after"),
    "rows made by child processes": Case("map_on_gpus"),
    "pinned text": Case("sft_3b", "pinned"),
    "pinned grpo": Case("grpo", "pinned"),
    "pinned dpo": Case("dpo", "pinned", ends=FOUR_ENDS[:1]),  # transformers 4 takes the batch from the checkpoint
    "pinned kto": Case("kto", "pinned"),
    "pinned continued pre-training": Case("cpt", "pinned"),
}
#: The case that a short run of all checks also rehearses.
SHORT = "pinned text"


def text_of(case: Case) -> str:
    """Return the notebook as JSON."""
    for folder in ("notebooks", "cases"):
        if (file := FIXTURES / folder / f"{case.source}.ipynb").exists():
            return file.read_text(encoding="utf-8")
    text = json.dumps(notebook("orpo" if case.source == "kto" else case.source))
    if case.source == "kto":
        text = text.replace("ORPO", "KTO")
    return text.replace("trl.experimental.orpo", "trl") if case.versions == "pinned" else text


def of(versions: str) -> Environment:
    """Return the environment with a set of versions; `python -m tests` has created both."""
    if versions == "newest":
        return here()
    try:
        return environment()
    except UvError as error:
        pytest.skip(f"the versions cannot be installed: {error}")


@pytest.mark.parametrize("name", [pytest.param(n, marks=pytest.mark.short if n == SHORT else ()) for n in CASES])
def test_two_processes_train_as_one_does(name: str, tmp_path: Path) -> None:
    case, script, kept = CASES[name], tmp_path / "train.py", tmp_path / "kept"
    resumes = bool(case.ends)
    (tmp_path / "train.ipynb").write_text(text_of(case), encoding="utf-8")
    convert_file(tmp_path / "train.ipynb", script, replace(Converted(), resume=resumes))
    where = of(case.versions)
    options = Options(offline=True, keep=kept, steps=4 if resumes else 3)
    plan = read(script, choose=lambda _: where)
    verdict = rehearse(plan, options)
    assert verdict.code == 0, "\n".join(text_lines(verdict))
    known = tables()[case.versions]
    assert {each: where.versions[each] for each in ("transformers", "trl")} == {
        each: known[each] for each in ("transformers", "trl")
    }
    for run, folder in ((verdict.alone, "one"), (verdict.job, "2-processes")):
        assert [len(list(rank.seen(Trained))) for rank in run.ranks] == [case.trainings] * len(run.ranks)
        assert logged([run])
        assert not case.saved or (kept / folder / "work" / case.saved).is_file()
    assert (kept / "2-processes" / "logs" / "1.out").read_text() == "", "one process prints"
    if resumes:
        whole = verdict.job if case.ends is ENDS_OF_TWO else verdict.alone
        goes_on(plan, case.ends, replace(options, keep=None), whole)
