"""Render a rewritten notebook as a script, with nbconvert and a template of our own."""

from __future__ import annotations

import glob
import shlex
from functools import cache
from typing import Any

from nb2ddp.facts.checkpoints import fresh_folders, wait_seconds
from nb2ddp.facts.environment import settings
from nb2ddp.facts.program import Program
from nb2ddp.facts.randomness import seed
from nb2ddp.facts.shell import quoted
from nb2ddp.options import Options
from nb2ddp.script.launch import launch_command
from nb2ddp.script.templates import FOLDERS, render
from nb2ddp.script.versions import LARGER_BATCH, guards, tries_kernels

_NAMES = ("local_rank", "world_size", "is_main_process", "split_batch", "run_once", "same_draws", "is_older", "stop")


def script(program: Program, cells: dict[int, str], needs: frozenset[str], script_name: str) -> str:
    """The whole script.

    Args:
        program: the notebook.
        cells: its rewritten code cells, by number.
        needs: the parts of the setup block that the rewritten code relies on.
        script_name: the file name the script's first lines tell how to start.
    """
    from nbformat import from_dict

    nodes = []
    for cell in program.notebook.cells:
        source = cell.source if cell.kind != "code" else cells[cell.number].strip("\n")
        if source or cell.kind != "code":
            nodes.append({"cell_type": cell.kind, "source": source, "metadata": {"number": cell.number}})
    resources = {
        "title": " ".join(program.notebook.name.split()),
        "script": shlex.quote(script_name),
        "launch": launch_command(program.options.launch, script_name),
        "setup": setup(program, needs, program.options),
    }
    text, _ = _exporter().from_notebook_node(from_dict({"cells": nodes, "metadata": {}}), resources=resources)
    return str(text).rstrip("\n") + "\n"


def setup(program: Program, needs: frozenset[str], options: Options) -> str:
    """The setup block: only the parts that this notebook needs."""
    names = {name: program.name(name) for name in _NAMES}
    parts = needs | ({"machines", "wait"} if options.launch.machines > 1 else set())
    seconds = wait_seconds(program)
    return render(
        "setup.py.j2",
        parts=parts,
        seed=seed(program),
        settings={quoted(name): quoted(value) for name, value in settings(program).items()},
        per_device_batch_size=options.per_device_batch_size,
        guards=guards(program),
        tries_kernels=tries_kernels(program),
        quoted=quoted,
        fresh_folders=[
            (quoted(f), quoted(f"{glob.escape(f.rstrip('/'))}/checkpoint-*")) for f in fresh_folders(program)
        ],
        timeout=f"seconds={seconds}" if seconds % 3600 else f"hours={seconds // 3600}",
        larger_batch=LARGER_BATCH,
        **names,
    ).strip("\n")


@cache
def _exporter() -> Any:
    from jinja2 import ChoiceLoader, FileSystemLoader
    from nbconvert.exporters import TemplateExporter

    exporter = TemplateExporter(
        default_preprocessors=[],  # nothing to preprocess, so nothing to validate again
        preprocessors=[],
        extra_template_basedirs=[],
        extra_loaders=[ChoiceLoader([FileSystemLoader(FOLDERS)])],
        enable_async=False,
    )
    exporter.environment.trim_blocks = True
    exporter.environment.lstrip_blocks = True
    exporter.template_file = "script.py.j2"
    return exporter
