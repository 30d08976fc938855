"""Public notebooks, converted as they are and rehearsed with Unsloth's own CPU backend: as one process, and as two.

They are looked for in the folder that the environment variable NB2DDP_CORPUS names. `python -m benchmarks.rehearsals`
rehearses more of them.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from nb2ddp.api import convert_file
from nb2ddp.rehearsal.rehearse import Options, rehearse
from nb2ddp.rehearsal.report import text_lines
from tests.rehearsals import read

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.skipif("NB2DDP_CORPUS" not in os.environ, reason="NB2DDP_CORPUS names no folder of public notebooks"),
]


@pytest.mark.parametrize(
    "name",
    [
        "Mistral_v0.3_(7B)-CPT",  # two trainings, embeddings trained, a random part of the data
        "gpt-oss-(20B)-Fine-tuning",  # experts, generation before training, answers alone
    ],
)
def test_two_processes_train_as_one_does(name: str, tmp_path: Path) -> None:
    notebook = Path(os.environ["NB2DDP_CORPUS"], f"{name}.ipynb")
    if not notebook.is_file():
        pytest.skip("not among the public notebooks of NB2DDP_CORPUS")
    convert_file(notebook, tmp_path / "train.py")
    plan = read(tmp_path / "train.py")
    verdict = rehearse(plan, Options(offline=True, keep=tmp_path / "kept"))
    assert plan.unsloth == "real"
    assert verdict.code == 0, "\n".join(text_lines(verdict))
    assert (tmp_path / "kept" / "2-processes" / "logs" / "1.out").read_text() == "", "one process prints"
