"""Each fixture notebook, converted and rehearsed: as one process, and as two."""

from __future__ import annotations

from pathlib import Path

import pytest

from nb2ddp.api import convert_file
from nb2ddp.rehearsal.plan import read
from nb2ddp.rehearsal.rehearse import Options, rehearse
from nb2ddp.rehearsal.report import text_lines

pytestmark = pytest.mark.e2e

NOTEBOOKS = Path(__file__).resolve().parents[2] / "fixtures" / "notebooks"
# What each notebook saves at its end, and the trainings it holds.
SAVED = {
    "alpaca": ("alpaca_lora/adapter_model.safetensors", 1),
    "chat_responses_only": ("chat_lora/adapter_model.safetensors", 1),
    "classification": ("reviews_model/model.safetensors", 1),
    "full_finetuning": ("full_model/model.safetensors", 1),
    "generation_before_training": ("quotes_lora/adapter_model.safetensors", 1),
    "install_state": ("review_lora/adapter_model.safetensors", 1),
    "save_and_reload": ("answers_lora/adapter_model.safetensors", 1),
    "sentence_embeddings": ("questions_model/model.safetensors", 1),
    "two_trainings": ("stories_lora/adapter_model.safetensors", 2),
}


#: One of each kind: text, with two trainings; a classifier.
SHORT = ("two_trainings", "classification")


@pytest.fixture(scope="module")
def stand_ins(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The stand-in models and data sets, built once."""
    return tmp_path_factory.mktemp("stand_ins")


@pytest.mark.parametrize("name", [pytest.param(n, marks=pytest.mark.short if n in SHORT else ()) for n in SAVED])
def test_two_processes_train_as_one_does(name: str, stand_ins: Path, tmp_path: Path) -> None:
    script, kept = tmp_path / "train.py", tmp_path / "kept"
    convert_file(NOTEBOOKS / f"{name}.ipynb", script)
    saved, trainings = SAVED[name]
    verdict = rehearse(read(script), Options(hub=stand_ins, offline=True, keep=kept))
    assert verdict.code == 0, "\n".join(text_lines(verdict))
    for run, folder in ((verdict.alone, "one"), (verdict.job, "2-processes")):
        assert (kept / folder / "work" / saved).is_file()
        assert [len(list(rank.seen("trained"))) for rank in run.ranks] == [trainings] * len(run.ranks)
        writers = [n for n, rank in enumerate(run.ranks) for event in rank.seen("write") if event["path"] == saved]
        assert set(writers) == {0}
        assert "'loss': " in (kept / folder / "logs" / "0.out").read_text()
