"""Render a rewritten notebook as a script, with nbconvert and a template of our own."""

from __future__ import annotations

import shlex
from functools import cache
from typing import Any

from nb2ddp.facts.environment import Setting, uses_unsloth
from nb2ddp.facts.gpu import gpu
from nb2ddp.facts.loading import ModelKind, model_name
from nb2ddp.facts.micro_batch import what_more_samples_mean
from nb2ddp.facts.parts import Part
from nb2ddp.facts.program import Program
from nb2ddp.facts.randomness import seed
from nb2ddp.facts.shell import quoted
from nb2ddp.facts.waiting import wait_seconds
from nb2ddp.script.launch import jobs_command, launch_command, single_command
from nb2ddp.script.packages import requirements
from nb2ddp.script.templates import FOLDERS, render
from nb2ddp.script.versions import floors, tries_kernels
from nb2ddp.syntax.arguments import constant

_NAMES = ("local_rank", "world_size", "is_main_process", "split_batch", "run_once", "same_draws", "sent_weights")


def script(program: Program, cells: dict[int, str], needs: frozenset[Part], script_name: str) -> str:
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
        "one": single_command(program.options.launch, script_name),
        "launch": launch_command(program.options.launch, script_name),
        "setup": setup(program, needs),
    }
    if Part.SERVER in needs:
        resources["server"] = _server_command(program)
    if program.options.launch.launcher == "uv":
        resources["jobs"] = jobs_command(program.options.launch, script_name)
        resources["metadata_header"] = requirements(program, floors(program)).header(
            program.notebook.metadata.requires_python
        )
    text, _ = _exporter().from_notebook_node(from_dict({"cells": nodes, "metadata": {}}), resources=resources)
    return str(text).rstrip("\n") + "\n"


def _server_command(program: Program) -> str:
    """What to type to start the vLLM server, on the GPU after those of the training."""
    names = {name for load in program.loads for name in model_name(program.tree, load).split()}
    lengths = (constant(program.tree, load, "max_seq_length") for load in program.loads)
    length = next((length for length in lengths if length is not None), None)
    words = ["trl", "vllm-serve", "--model", names.pop() if len(names) == 1 else "MODEL"]
    words += ["--max_model_len", str(length)] if isinstance(length, int) else []
    return f"CUDA_VISIBLE_DEVICES={program.options.launch.processes} {shlex.join(words)}"


def setup(program: Program, needs: frozenset[Part]) -> str:
    """The setup block: only the parts that this notebook needs."""
    options = program.options
    with_unsloth = uses_unsloth(program.tree)
    seconds = wait_seconds(program.training)
    return render(
        "setup.py.j2",
        Part=Part,
        parts=needs | ({Part.MACHINES, Part.WAIT} if options.launch.machines > 1 else set()),
        seed=seed(program.tree),
        settings=_settings(program.early_settings),
        uses_unsloth=with_unsloth,
        floors=floors(program) if with_unsloth else [],
        warns_of_unused=program.model_kind is not ModelKind.DENSE_TEXT,
        tries_kernels=with_unsloth and tries_kernels(program),
        timeout=f"seconds={seconds}" if seconds % 3600 else f"hours={seconds // 3600}",
        grows=Part.GPU_MEMORY in needs and options.per_device_batch_size is None,
        fixed_batch=None if options.per_device_batch_size == "notebook" else options.per_device_batch_size,
        gpu=gpu(program.notebook),
        more_samples=what_more_samples_mean(program.training),
        **{name: program.name(name) for name in _NAMES},
    ).strip("\n")


def _settings(early: list[Setting]) -> list[str]:
    """The lines that set what the notebook sets before Unsloth is imported, with the comments of those that moved."""
    lines: list[str] = []
    for name in dict.fromkeys(each.name for each in early):
        own = [each for each in early if each.name == name]
        moved = [each for each in own if each.moves]
        beside, *others = dict.fromkeys(each.beside for each in moved if each.beside) or [""]
        if not beside and not lines:
            beside = "# the notebook's settings, before the imports that read them"
        lines += dict.fromkeys([comment for each in moved for comment in each.comments] + others)
        lines.append(f"os.environ[{quoted(name)}] = {quoted(own[-1].value)}  {beside}".rstrip())
    return lines


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
