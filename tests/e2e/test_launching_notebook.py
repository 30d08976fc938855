"""The notebook that launches a script, run for real: its cells in a kernel, the script in two processes on CPU."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

from nb2ddp.api import convert_file
from nb2ddp.options import Launch, Options
from nb2ddp.rehearsal.run import free_port

from .runner import copy_hub, environment

pytestmark = pytest.mark.e2e

ALPACA = Path(__file__).resolve().parents[2] / "fixtures" / "notebooks" / "alpaca.ipynb"


def test_trains_in_two_processes_and_shows_what_was_saved(
    hub: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    convert_file(ALPACA, tmp_path / "train.py", Options(launch=Launch(launcher="notebook")))
    notebook = nbformat.read(tmp_path / "train.launch.ipynb", as_version=4)
    nbformat.validate(notebook)
    work = tmp_path / "run" / "work"
    work.parent.mkdir()
    copy_hub(hub, work)
    for name in ("logs", "steps"):
        (work.parent / name).mkdir()
    for name, value in environment(work.parent, cuda_is_cpu=True).items():
        monkeypatch.setenv(name, value)
    # accelerate starts one process on a CPU; nothing is installed in a test
    launched = f"!{sys.executable} -m torch.distributed.run --nproc-per-node 2 --master-port {free_port()} train.py"
    for cell in notebook.cells:
        cell.source = re.sub(r"^!accelerate launch .* train\.py$", launched, cell.source, flags=re.MULTILINE)
        cell.source = re.sub(r"^!pip install ", "!echo ", cell.source, flags=re.MULTILINE)
    NotebookClient(notebook, timeout=400, resources={"metadata": {"path": str(work)}}).execute()
    (launch,) = [cell for cell in notebook.cells if launched in cell.source]
    said = "".join(output.get("text", "") for output in launch.outputs)
    assert said.count("'train_runtime':") == 1, "one process prints"
    assert (work / "alpaca_lora" / "adapter_model.safetensors").is_file()
    assert len(list((work.parent / "steps").glob("*.jsonl"))) == 2
    looking = [cell for cell in notebook.cells[notebook.cells.index(launch) + 1 :] if cell.cell_type == "code"]
    assert any('"alpaca_lora"' in cell.source for cell in looking), "what was saved is loaded"
    assert any("model.generate(" in cell.source and cell.outputs for cell in looking)


def test_failure_of_the_training_stops_the_notebook(tmp_path: Path) -> None:
    convert_file(ALPACA, tmp_path / "train.py", Options(launch=Launch(launcher="notebook")))
    notebook = nbformat.read(tmp_path / "train.launch.ipynb", as_version=4)
    (launch,) = [cell for cell in notebook.cells if "!accelerate launch" in cell.source]
    launch.source = re.sub(r"^!accelerate launch .*$", "!exit 3", launch.source, flags=re.MULTILINE)
    notebook.cells = [launch]
    done = NotebookClient(notebook, timeout=100, allow_errors=True, resources={"metadata": {"path": str(tmp_path)}})
    (output,) = done.execute().cells[0].outputs
    assert output.evalue == "The training failed: its own error stands above."
