"""Each fixture notebook, converted and run for real: as one process, and as two."""

from __future__ import annotations

from pathlib import Path

import pytest

from nb2ddp.api import convert_file

from .runner import difference, run

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


@pytest.mark.parametrize("name", [pytest.param(n, marks=pytest.mark.short if n in SHORT else ()) for n in SAVED])
def test_two_processes_train_as_one_does(name: str, hub: Path, tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    convert_file(NOTEBOOKS / f"{name}.ipynb", script)
    saved, trainings = SAVED[name]
    alone, both = (run(script, hub, tmp_path / str(n), n, cuda_is_cpu=True) for n in (1, 2))
    for result in (alone, both):
        assert list(result.problems()) == []
        assert len(result.trainings) == trainings
        assert "'loss': " in result.ranks[0].stdout
        assert result.writers[saved] == {0}
        assert (result.folder / saved).is_file()
    assert both.ranks[1].trainings, "the second process did not train"
    assert difference(alone.trainings, both.trainings) < 1e-3
