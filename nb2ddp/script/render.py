"""Render a rewritten notebook as a script, with nbconvert and a template of this package."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from functools import cache
from typing import Any

from jinja2 import ChoiceLoader, FileSystemLoader
from nbconvert.exporters import TemplateExporter

from nb2ddp.facts.loading import model_name
from nb2ddp.facts.program import Program
from nb2ddp.notebook.ipynb import Cell
from nb2ddp.script.inserted import LEAVE_GPUS, SEND_WEIGHTS
from nb2ddp.script.launch import jobs_command, launch_lines, single_command
from nb2ddp.script.needs import named, passed_variables
from nb2ddp.script.packages import Requirements
from nb2ddp.script.templates import FOLDERS
from nb2ddp.syntax.arguments import constant

#: A picture pasted into text; a comment of a megabyte is of no use.
_PASTED = re.compile(r"(data:\w+/[\w.+-]+;base64,)[\w+/=]{40,}")
#: Blank lines around a text.
_AROUND = re.compile(r"\A(?:[ \t]*\n)+|\s+\Z")
_INSTALL = re.compile(r"(?i)\binstall|\bpip\b|\brestart\w*\b[^.\n]*\b(?:runtime|kernel|session)\b")
#: A text with more words is about more than an installation.
_FEW = 80


def script(
    program: Program,
    packages: Requirements,
    needs: Sequence[str],
    cells: dict[int, str],
    setup: str,
    script_name: str,
) -> str:
    """Return the whole script.

    Args:
        program: the notebook.
        packages: its packages.
        needs: the other needs of its job.
        cells: its rewritten code cells, by number.
        setup: its setup block.
        script_name: the file name in the commands of the script's first lines.
    """
    nodes = []
    for cell in _kept_cells(program, cells):
        words = _PASTED.sub(r"\1...", _AROUND.sub("", cell.source))
        source = cells[cell.number].strip("\n") if cell.kind == "code" else words
        nodes.append({"cell_type": cell.kind, "source": source, "number": cell.number})
    resources = {
        "title": " ".join(program.notebook.name.split()),
        "gpus": "all GPUs of one machine, in one process" if program.options.split_model else "one GPU or several",
        "lines": _lines(program, script_name, serves=SEND_WEIGHTS in setup, leaves=LEAVE_GPUS in setup),
        "needs": named(needs),
        "setup": setup,
    }
    if SEND_WEIGHTS in setup:
        resources["server"] = _server_command(program)
    if program.options.launch.launcher == "uv":
        resources["metadata_header"] = packages.header(program.notebook.metadata.requires_python)
    text: str = _exporter().template.render(nb={"cells": nodes}, resources=resources)
    return text.rstrip("\n") + "\n"


def _kept_cells(program: Program, cells: dict[int, str]) -> list[Cell]:
    """Return the cells of the script: those with code left or with text.

    A text about an installation is removed with the code right below it; the first cell stays, as the title.
    """
    filled = [cell for cell in program.notebook.cells if cell.source.strip()]
    kept: list[Cell] = []
    is_removed = False  # the code right below
    for cell in reversed(filled):
        is_short = cell.kind == "markdown" and len(cell.source.split()) <= _FEW
        is_about_install = is_short and _INSTALL.search(cell.source.strip().split("\n", 1)[0])
        if cell.kind == "code" and not cells[cell.number].strip("\n"):
            is_removed = True
        elif not (is_removed and cell is not filled[0] and is_about_install):
            kept.append(cell)
            is_removed = False
    return kept[::-1]


def _lines(program: Program, script_name: str, *, serves: bool, leaves: bool) -> list[tuple[str, str]]:
    """Return the lines that start the script, each with its purpose."""
    launch = program.options.launch
    if program.options.split_model:
        return [("all GPUs", single_command(launch, script_name))]
    lines = [
        ("one GPU", single_command(launch, script_name)),
        *launch_lines(launch, script_name, serves=serves or leaves),
    ]
    if leaves:
        lines.append(("GPUs", "start one process fewer than there are GPUs: the notebook's server uses one"))
    if launch.launcher == "uv":
        lines.append(("on HF Jobs", jobs_command(launch, script_name, passed_variables(program))))
    return lines


def _server_command(program: Program) -> str:
    """Return the line that starts the vLLM server, on the GPU after those that train."""
    names = {name for load in program.loads for name in model_name(program.tree, load).split()}
    lengths = (constant(program.tree, load, "max_seq_length") for load in program.loads)
    length = next((length for length in lengths if length is not None), None)
    words = ["trl", "vllm-serve", "--model", names.pop() if len(names) == 1 else "MODEL"]
    words += ["--max_model_len", str(length)] if isinstance(length, int) else []
    return f"CUDA_VISIBLE_DEVICES={program.options.launch.processes} {shlex.join(words)}"


@cache
def _exporter() -> Any:
    exporter = TemplateExporter(
        template_paths=[],  # only this package's: nbconvert's are in Jupyter's share/, which not every installation has
        extra_loaders=[ChoiceLoader([FileSystemLoader(FOLDERS)])],
        enable_async=False,
    )
    exporter.environment.trim_blocks = True
    exporter.environment.lstrip_blocks = True
    exporter.template_file = "script.py.j2"
    return exporter
