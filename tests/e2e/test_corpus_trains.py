"""Public notebooks, converted and rehearsed: as one process, and as two.

They are looked for, as .ipynb or as marimo's .py, in the folder that the environment variable NB2DDP_CORPUS names. A
few of different constructs are run (2 minutes); with NB2DDP_CORPUS_TRAIN=all every one that Unsloth's CPU backend
trains (15 minutes). The others need images, vLLM or services that a CPU run lacks. `pytest -rP` shows the
differences of the losses.

The notebook is converted as it is, and the script rehearsed, with Unsloth's own CPU backend.
"""

from __future__ import annotations

import os
import re
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from nb2ddp.api import convert_file
from nb2ddp.rehearsal.plan import read
from nb2ddp.rehearsal.rehearse import Options, rehearse
from nb2ddp.rehearsal.report import text_lines

from .runner import Process, Step, Trainings, difference, read_writers, recorder

if TYPE_CHECKING:
    from nb2ddp.rehearsal.run import Rank

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.skipif("NB2DDP_CORPUS" not in os.environ, reason="NB2DDP_CORPUS names no folder of public notebooks"),
]

STEPS = 3
A_FEW = (
    "Mistral_v0.3_(7B)-CPT",  # two trainings, embeddings trained, a random part of the data
    "Phi_3.5_Mini-Conversational",  # fields of the trainer as keywords of an older TRL
    "gpt-oss-(20B)-Fine-tuning",  # experts, generation before training, answers alone
)
FURTHER = (
    "ERNIE_4_5_21B_A3B_PT-Conversational",
    "Falcon_H1-Alpaca",
    "Falcon_H1_(0.5B)-Alpaca",
    "Gemma2_(2B)-Alpaca",
    "Gemma3N_(4B)-Conversational",
    "Gemma3_(27B)_A100-Conversational",
    "Gemma4_(12B)_Text",
    "Gemma4_(26B_A4B)-Text",
    "Gemma4_(31B)-Text",
    "Gemma4_(E2B)-Text",
    "Gemma4_(E4B)-Text",
    "Granite4.0_350M",
    "LFM2.5_(1.2B)-Conversational",
    "Liquid_LFM2-Conversational",
    "Liquid_LFM2_(1.2B)-Conversational",
    "Llama3.1_(8B)-Alpaca",
    "Llama3.3_(70B)_A100-Conversational",
    "Llama3_(8B)-Alpaca",
    "Magistral_(24B)-Reasoning-Conversational",
    "Mistral_Small_(22B)-Alpaca",
    "Muse_Glimmer_(30B)-Conversational",
    "Phi_3_Medium-Conversational",
    "Qwen2.5_Coder_(14B)-Conversational",
    "Qwen2_(7B)-Alpaca",
    "Qwen3_(14B)-Alpaca",
    "Qwen3_(14B)-Reasoning-Conversational",
    "Qwen3_(4B)-Instruct",
    "Qwen3_(4B)_Instruct-QAT",
    "Qwen_3_5_27B_A100(80GB)",
    "TinyQwen3_MoE",
)
NOTEBOOKS = (*A_FEW, *FURTHER) if os.environ.get("NB2DDP_CORPUS_TRAIN") == "all" else A_FEW


@pytest.fixture(scope="module")
def stand_ins(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The stand-in models and data sets, built once."""
    return tmp_path_factory.mktemp("stand_ins")


def trainings(rank: Rank) -> Trainings:
    """What the trainer logged in each training."""
    found: list[list[Step]] = []
    for event in rank.seen("train", "log"):
        if event["kind"] == "train":
            found.append([])
        elif "loss" in event["values"]:
            found[-1].append(Step(event["step"], event["values"]["loss"], event["values"].get("grad_norm", 0.0)))
    return tuple(map(tuple, found))


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_two_processes_train_as_one_does(
    name: str, stand_ins: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = Path(os.environ["NB2DDP_CORPUS"])
    notebook = next((path for path in (folder / f"{name}.ipynb", folder / f"{name}.py") if path.is_file()), None)
    if notebook is None:
        pytest.skip("not among the public notebooks of NB2DDP_CORPUS")
    script, kept = tmp_path / "train.py", tmp_path / "kept"
    convert_file(notebook, script)
    work = kept / "2-processes" / "work"
    below, log = tempfile.mkdtemp(), tmp_path / "writes.log"  # sockets need a short path
    monkeypatch.setattr(tempfile, "tempdir", below)
    # Beside what Python sees: what is written by native code, and by programs.
    for variable, value in {"LD_PRELOAD": recorder(), "WRITES_BELOW": below, "WRITES_LOG": log}.items():
        monkeypatch.setenv(variable, str(value))
    plan = read(script)
    verdict = rehearse(plan, Options(hub=stand_ins, offline=True, keep=kept, steps=STEPS))
    assert plan.unsloth == "real"
    assert verdict.code == 0, "\n".join(text_lines(verdict))
    alone, *both = (trainings(rank) for rank in (*verdict.alone.ranks, *verdict.job.ranks))
    assert {len(training) for each in (alone, *both) for training in each} == {STEPS}
    assert alone
    assert len(both) == 2
    print(f"losses differ by {difference(alone, both[0]):.1e}")
    assert difference(alone, both[0]) < 1e-3
    moved = re.sub(rf"(?m){below}/nb2ddp-\w+/", f"{kept}/", log.read_text())
    log.write_text("".join(line for line in moved.splitlines(keepends=True) if f" {work}/" in line))
    writers, unseen = read_writers(log, work, {}, alone=False)
    assert [path for path, ranks in writers.items() if len(ranks) > 1] == []
    assert unseen == (script.name,)
    logs = kept / "2-processes" / "logs"
    assert Process((logs / "1.out").read_text(), (logs / "1.err").read_text(), ()).printed == ""
