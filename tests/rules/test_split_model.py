"""A script with a single process that spreads the model over all GPUs."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from nb2ddp.convert import convert_source
from nb2ddp.options import Launch, Options, OptionsError
from tests.notebooks import text

SPLIT = Options(split_model=True)


def script() -> str:
    return convert_source(text(), options=SPLIT).files["train.py"]


def test_nothing_is_for_several_processes() -> None:
    files = convert_source(text(), options=SPLIT).files
    assert 'device_map="balanced"' in files["train.py"]
    assert "split_batch" not in files["train.py"]
    assert "#   all GPUs:      python train.py\n" in files["train.py"]
    assert "accelerate_config.yaml" not in files  # the folder's accelerate config is for its other scripts
    assert "as a script, for all GPUs of one machine, in one process.\n" in files["train.py"]
    assert re.search(r"convert again: nb2ddp \S+ train.py  #", files["train.py"])


def test_under_a_launcher_with_several_processes_it_ends_at_once(tmp_path: Path) -> None:
    path = tmp_path / "train.py"
    path.write_text(script(), encoding="utf-8")
    environment = {**os.environ, "WORLD_SIZE": "2", "RANK": "1", "LOCAL_RANK": "1"}
    done = subprocess.run([sys.executable, path], env=environment, capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    assert (
        done.stderr
        == f"This script is one process that spreads its model over all GPUs; start it with: python {path}\n"
    )


def test_the_batch_is_the_notebooks_unless_a_size_is_asked_for() -> None:
    sized = convert_source(text(), options=Options(split_model=True, batch=1)).files["train.py"]
    assert "split_batch(2, 4, largest=1)" in sized


@pytest.mark.parametrize("launch", [Launch(launcher="torchrun"), Launch(1, 2)])
def test_what_it_does_not_go_with(launch: Launch) -> None:
    with pytest.raises(OptionsError, match="one machine"):
        Options(launch=launch, split_model=True)
