"""The script that a job runs, and the command that starts it."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path
from typing import Any

import nbformat
from nbconvert import PythonExporter

from benchmarks.gpu.kinds import KINDS, NOTEBOOKS, Job, Kind
from nb2ddp.api import convert_file
from nb2ddp.options import Options


def setting(name: str) -> str:
    """Return the pattern of `name = ` at the start of a line."""
    return rf"^ *{re.escape(name)} = "


def replace(text: str, name: str, value: str) -> str:
    """Return `text` with its first line `name = ...` set to `value`, which is code, or unchanged if there is none."""
    return re.sub(rf"(?m)({setting(name)})[^#\n]+?(?=,?\s*(?:#|$))", lambda found: found[1] + value, text, count=1)


def notebook(name: str) -> Any:
    """Return the notebook of a kind, with the kind's settings.

    Raises:
        ValueError: a setting is not in the notebook.
    """
    kind = KINDS[name]
    book = nbformat.read(NOTEBOOKS / f"{kind.notebook}.ipynb", as_version=4)
    for setting_name, value in kind.settings.items():
        for cell in book.cells:
            source = replace(cell.source, setting_name, value)
            if source != cell.source or re.search(f"(?m){setting(setting_name)}{re.escape(value)}", source):
                cell.source = source
                break
        else:
            raise ValueError(f"{kind.notebook}.ipynb does not set {setting_name}")
    return book


def exported(book: Any) -> str:
    """Return a notebook as nbconvert exports it, without the lines that only IPython runs."""
    text, _ = PythonExporter(exclude_input_prompt=True).from_notebook_node(book)
    return "\n".join(line for line in text.split("\n") if not line.startswith("get_ipython()"))


def by_hand(kind: Kind) -> str:
    """Return the training of a kind with transformers, PEFT and TRL alone, with the kind's settings."""
    text = (NOTEBOOKS / "by_hand.py").read_text()
    for name, value in kind.settings.items():
        text = replace(text, name, value)
    return text


def script_hash(folder: Path) -> str:
    """Return a hash of the script that `write` wrote into `folder`."""
    return hashlib.sha256((folder / "train.py").read_bytes()).hexdigest()[:16]


def write(job: Job, folder: Path) -> list[str]:
    """Write the job's script, with what belongs to it, into `folder`.

    Returns:
        The command that starts it there.
    """
    folder.mkdir(parents=True, exist_ok=True)
    script, book = folder / "train.py", notebook(job.kind)
    config = ["--multi_gpu"]
    if job.variant == "notebook":
        script.write_text(exported(book))
    elif job.variant == "by_hand":
        script.write_text(by_hand(KINDS[job.kind]))
    else:
        nbformat.write(book, folder / "notebook.ipynb")
        options = Options(batch="notebook") if job.variant == "converted" else Options()
        convert_file(folder / "notebook.ipynb", script, options)
        config = ["--config_file", "accelerate_config.yaml"]
    if job.gpus == 1:
        return ["python", "train.py"]
    return ["accelerate", "launch", *config, "--num_processes", str(job.gpus), "train.py"]
