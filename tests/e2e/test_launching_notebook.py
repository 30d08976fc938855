"""A launching notebook, run for real: its cells in a kernel, and the script in two processes on the CPU."""

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
from tests.jobs import STEPS, prepare

pytestmark = pytest.mark.e2e

ALPACA = Path(__file__).resolve().parents[2] / "fixtures" / "notebooks" / "alpaca.ipynb"


def test_trains_in_two_processes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job = prepare(tmp_path / "job", Launch(launcher="notebook"))
    notebook = nbformat.read(job.work / "train.launch.ipynb", as_version=4)
    nbformat.validate(notebook)
    for name, value in job.environment.items():
        monkeypatch.setenv(name, value)
    # accelerate would start only one process on a CPU; the test installs nothing
    launched = f"!{sys.executable} -m torch.distributed.run --nproc-per-node 2 --master-port {free_port()} train.py"
    for cell in notebook.cells:
        cell.source = re.sub(r"^!accelerate launch .* train\.py$", launched, cell.source, flags=re.MULTILINE)
        cell.source = re.sub(r"^!pip install ", "!echo ", cell.source, flags=re.MULTILINE)
    NotebookClient(notebook, timeout=400, resources={"metadata": {"path": str(job.work)}}).execute()
    (launch,) = [cell for cell in notebook.cells if launched in cell.source]
    printed = "".join(output.get("text", "") for output in launch.outputs)
    assert printed.count("'train_runtime':") == 1, "one process prints"
    assert (job.work / "saved" / "model.safetensors").is_file()
    assert [len(job.losses(rank)) for rank in range(3)] == [STEPS, STEPS, 0]
    assert printed.count("layers 2") == 1, "the main process runs the rest of the notebook"


def test_failure_of_the_training_stops_the_notebook(tmp_path: Path) -> None:
    convert_file(ALPACA, tmp_path / "train.py", Options(launch=Launch(launcher="notebook")))
    notebook = nbformat.read(tmp_path / "train.launch.ipynb", as_version=4)
    (launch,) = [cell for cell in notebook.cells if "!accelerate launch" in cell.source]
    launch.source = re.sub(r"^!accelerate launch .*$", "!exit 3", launch.source, flags=re.MULTILINE)
    notebook.cells = [launch]
    done = NotebookClient(notebook, timeout=100, allow_errors=True, resources={"metadata": {"path": str(tmp_path)}})
    (output,) = done.execute().cells[0].outputs
    assert output.evalue == "The training failed: its error is printed above."
