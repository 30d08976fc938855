"""Processes whose GPUs differ agree on one split of the batch, and train as one does."""

from __future__ import annotations

from pathlib import Path

import pytest

from nb2ddp.api import convert_file
from nb2ddp.options import Launch, Options
from nb2ddp.rehearsal.plan import read
from nb2ddp.rehearsal.rehearse import Options as Rehearsal
from nb2ddp.rehearsal.rehearse import rehearse
from nb2ddp.rehearsal.report import text_lines

pytestmark = pytest.mark.e2e

NOTEBOOK = Path(__file__).resolve().parents[2] / "fixtures" / "notebooks" / "alpaca.ipynb"
RANK = 'int(os.environ.get("RANK", 0))'
#: What the script asks of a process's own GPUs, and what the two processes are told.
ANSWERS = {
    "range(torch.cuda.device_count())": "range(1)",
    "torch.cuda.get_device_properties(n).total_memory": f"[15.8e9, 150.1e9][{RANK}]",
}


def test_processes_with_unequal_gpus_train_as_one_does(tmp_path: Path) -> None:
    """A T4 and an H200, which alone would take 4 x 1."""
    script, kept = tmp_path / "train.py", tmp_path / "kept"
    convert_file(NOTEBOOK, script, Options(launch=Launch(gpus=1, machines=2)))
    text = script.read_text(encoding="utf-8")
    for asked, answer in ANSWERS.items():
        assert text.count(asked) == 1, asked
        text = text.replace(asked, answer)
    script.write_text(text, encoding="utf-8")
    verdict = rehearse(read(script), Rehearsal(offline=True, keep=kept))
    assert verdict.code == 0, "\n".join(text_lines(verdict))
    printed = (kept / "2-processes" / "logs" / "0.out").read_text(encoding="utf-8")
    assert "Samples a step: 8 (per-device batch 2 x accumulation 2 x processes 2; in the notebook 8)" in printed
