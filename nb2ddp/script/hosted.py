"""Write a notebook that launches the script: for Kaggle, Colab, and Jupyter on a machine with several GPUs.

`accelerate launch` starts the script in separate processes. `accelerate.notebook_launcher` would fork the notebook's
process, which must then never have used CUDA (accelerate issue 3833).
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator

from nbformat import writes
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

from nb2ddp.facts.program import Program
from nb2ddp.script.needs import passed_variables
from nb2ddp.script.packages import Requirements
from nb2ddp.script.templates import render

_GOES_ON = (
    "If an earlier session ended before its training did, the training resumes. On Kaggle add that session's output to"
    " this notebook's input (*Add Input*, *Your Work*)."
)


def launching_notebook(program: Program, script: str, script_name: str, packages: Requirements) -> str:
    """Return the text of an .ipynb file that installs packages, writes the script, and starts it on all GPUs.

    Args:
        program: the notebook.
        script: the converted script.
        script_name: its file name.
        packages: the notebook's packages.
    """
    cells = list(_cells(program, script, script_name, packages))
    nodes = [
        (new_markdown_cell if kind == "markdown" else new_code_cell)(source.strip("\n"), id=f"cell-{number}")
        for number, (kind, source) in enumerate(cells, start=1)
    ]
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    # Colab and Kaggle choose a machine by these
    metadata = {"kernelspec": kernel, "language_info": {"name": "python"}, "accelerator": "GPU"}
    metadata |= {"kaggle": {"accelerator": "nvidiaTeslaT4", "isGpuEnabled": True, "isInternetEnabled": True}}
    return str(writes(new_notebook(cells=nodes, metadata=metadata), version=4)) + "\n"


def _cells(program: Program, script: str, script_name: str, packages: Requirements) -> Iterator[tuple[str, str]]:
    """Yield the kind and source of each cell."""
    title = " ".join(program.notebook.name.split())
    on_kaggle = "On Kaggle, choose *GPU T4 x2* as accelerator and turn *Internet* on."
    names = passed_variables(program)
    asks = f"The script asks for {_listed(names)}: add them to Kaggle's or Colab's secrets, where it needs them."
    yield "markdown", f"# {title} on all GPUs of this machine\n\n{on_kaggle}\n\n{asks}"
    for name, text in packages.files(script_name, title).items():
        yield "code", f"%%writefile {shlex.quote(name)}\n{text}"
    if packages:
        yield "code", f"!{packages.command(script_name).replace('install', 'install --quiet')}"
    yield "code", render("launch_secrets.py.j2", names=json.dumps(names))
    yield "code", f"%%writefile {shlex.quote(script_name)}\n{script}"
    options = program.options
    if options.resume:
        yield "markdown", _GOES_ON
        yield "code", render("launch_resume.py.j2", name=json.dumps(script_name))
    script_word = shlex.quote(script_name)
    yield "code", render("launch_cell.py.j2", script=script_word, launch=options.launch, resume=options.resume)
    has_run = f"The main process of `{script_name}` has run the rest of the notebook, and what it printed stands above."
    yield "markdown", f"{has_run} What it saved as pictures and sound:"
    yield "code", render("launch_results.py.j2")


def _listed(names: list[str]) -> str:
    """Return names as part of a sentence in Markdown: `A`, `B` and `C`."""
    *first, last = [f"`{name}`" for name in names]
    return f"{', '.join(first)} and {last}" if first else last
