"""The script that a job runs, and the command that starts it."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import nbformat
from nbconvert import PythonExporter

from benchmarks.gpu.kinds import KINDS, NOTEBOOKS, Job
from nb2ddp.api import convert_file
from nb2ddp.options import Options

HANDWRITTEN = Path(__file__).parent / "handwritten" / "sft.py"


def setting(name: str) -> str:
    """The pattern of `name = ` at the start of a line."""
    return rf"^ *{re.escape(name)} = "


def replace(text: str, name: str, value: str) -> str:
    """`text` with its first line `name = ...` set to `value`, which is code; unchanged if there is none."""
    return re.sub(rf"(?m)({setting(name)})[^#\n]+?(?=,?\s*(?:#|$))", lambda found: found[1] + value, text, count=1)


def notebook(job: Job) -> Any:
    """The notebook of a job, with the settings of its kind.

    Raises:
        ValueError: a setting is not in the notebook.
    """
    kind = KINDS[job.kind]
    settings = dict(kind.settings)
    if job.variant in kind.shorter:
        settings["max_steps"] = str(kind.shorter[job.variant])
    return changed(kind.notebook, settings)


def changed(name: str, settings: Mapping[str, str]) -> Any:
    """The notebook of this name with these settings.

    Raises:
        ValueError: a setting is not in the notebook.
    """
    book = nbformat.read(NOTEBOOKS / f"{name}.ipynb", as_version=4)
    for setting_name, value in settings.items():
        for cell in book.cells:
            source = replace(cell.source, setting_name, value)
            if source != cell.source or re.search(f"(?m){setting(setting_name)}{re.escape(value)}", source):
                cell.source = source
                break
        else:
            raise ValueError(f"{name}.ipynb does not set {setting_name}")
    return book


def exported(book: Any) -> str:
    """A notebook as nbconvert exports it, without the lines that only IPython runs."""
    text, _ = PythonExporter(exclude_input_prompt=True).from_notebook_node(book)
    return "\n".join(line for line in text.split("\n") if not line.startswith("get_ipython()"))


def plain(job: Job) -> str:
    """The script of a job that does not convert its notebook."""
    text = exported(notebook(job))
    if job.variant == "exported_equal":
        name = "gradient_accumulation_steps"
        steps = int(re.findall(rf"{name} = (\d+)", text)[0])
        if steps % job.gpus:
            raise ValueError(f"{job.key}: {steps} accumulation steps cannot be shared by {job.gpus} GPUs")
        text = replace(text, name, str(steps // job.gpus))
    return text


def by_hand(job: Job) -> list[str]:
    """The arguments of the script that was written by hand, for the notebook's batch and steps."""
    sources = "\n".join(cell.source for cell in notebook(job).cells)
    number = {
        name: int(re.findall(rf"{name} = (\d+)", sources)[0])
        for name in ("per_device_train_batch_size", "gradient_accumulation_steps", "max_steps")
    }
    per_device = number["per_device_train_batch_size"]
    accumulation = number["gradient_accumulation_steps"] // job.gpus
    batch = [f"--per-device={per_device}", f"--accumulation={accumulation}", f"--steps={number['max_steps']}"]
    return [*KINDS[job.kind].by_hand, *batch]


def script_hash(folder: Path) -> str:
    """A hash of the script that `write` wrote into `folder`."""
    return hashlib.sha256((folder / "train.py").read_bytes()).hexdigest()[:16]


def write(job: Job, folder: Path) -> list[str]:
    """Write the job's script, with what belongs to it, into `folder`.

    Returns:
        The command that starts it there.
    """
    folder.mkdir(parents=True, exist_ok=True)
    script, arguments, config = folder / "train.py", [], []
    if job.variant in ("converted", "nudged"):
        source = folder / "notebook.ipynb"
        nbformat.write(notebook(job), source)
        convert_file(source, script, Options(per_device_batch_size="notebook"))
        config = ["--config_file", "accelerate_config.yaml"]
    elif job.variant == "handwritten":
        script.write_text(HANDWRITTEN.read_text())
        arguments = by_hand(job)
    else:
        script.write_text(plain(job))
    if job.gpus == 1:
        return ["python", "train.py", *arguments]
    # without the file, a user's own default configuration would be read where there is one
    launch = ["accelerate", "launch", *(config or ["--multi_gpu"]), "--num_processes", str(job.gpus)]
    return [*launch, "train.py", *arguments]
