"""What a job prints last when an error ends it."""

from __future__ import annotations

import subprocess
import sys
from types import SimpleNamespace

import pytest
import torch

from nb2ddp.runtime import out_of_memory

SCRIPT = """
import sys, torch
from nb2ddp.runtime import out_of_memory
sys.excepthook = out_of_memory.explain_out_of_memory
raise ValueError("the user's own")
"""


@pytest.mark.parametrize(
    ("sizes", "then"),
    [
        ([1, 2], ["Or convert again (the line is at the script's top) with --per-device-batch-size 1"]),
        ([1], ["The per-device batch is 1: lower max_seq_length or max_completion_length"]),
        ([], []),  # before any batch: the model itself is too large
    ],
)
def test_the_last_lines_say_what_to_type(
    sizes: list[int], then: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(out_of_memory, "per_device_batches", sizes)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda gpu: SimpleNamespace(total_memory=15.8e9))
    monkeypatch.setattr(sys, "argv", ["train.py"])
    error = torch.cuda.OutOfMemoryError("CUDA out of memory.")
    out_of_memory.explain_out_of_memory(type(error), error, None)
    printed = capsys.readouterr().err.splitlines()
    assert "CUDA out of memory." in printed[0]
    assert printed[1:] == ["GPU 0 has 16 GB; nb2ddp estimate train.py says what fits", *then]


def test_other_errors_are_printed_as_ever() -> None:
    ended = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stderr.splitlines()[-1]) == (1, "ValueError: the user's own")
