"""Small notebooks for tests."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from nb2ddp.facts.program import Program
from nb2ddp.notebook.ipynb import Cell, Notebook
from nb2ddp.options import Options
from nb2ddp.rules.engine import rewrite
from nb2ddp.rules.rule import Rule

#: The line between two cells of a rule's example.
CELL_BREAK = "# %%\n"
#: The cells of the smallest notebook that trains. Each rule has its place in it.
CELLS = (
    "%%capture\n!pip install unsloth",
    "from unsloth import FastLanguageModel\n"
    'model, tokenizer = FastLanguageModel.from_pretrained("unsloth/Llama-3.2-1B")\n'
    "model = FastLanguageModel.get_peft_model(model)",
    "from trl import SFTConfig, SFTTrainer\n"
    "args = SFTConfig(per_device_train_batch_size = 2, gradient_accumulation_steps = 4)\n"
    "trainer = SFTTrainer(model = model, args = args)\n"
    "trainer.train()",
    'model.save_pretrained("lora")',
)


def code(source: str | list[str], **fields: Any) -> dict[str, Any]:
    """Return a code cell in its JSON form."""
    return {"cell_type": "code", "metadata": {}, "outputs": [], "execution_count": None, "source": source, **fields}


def markdown(source: str) -> dict[str, Any]:
    """Return a Markdown cell in its JSON form."""
    return {"cell_type": "markdown", "metadata": {}, "source": source}


def document(*cells: str | dict[str, Any], **fields: Any) -> dict[str, Any]:
    """Return a notebook in its JSON form. Strings become code cells."""
    made = [code(cell) if isinstance(cell, str) else cell for cell in cells or CELLS]
    colab = {"colab": {"gpuType": "T4"}}
    return {"nbformat": 4, "nbformat_minor": 4, "metadata": colab, "cells": made, **fields}


def text(*cells: str | dict[str, Any], **fields: Any) -> str:
    """Return the content of a notebook file as Jupyter writes it, one line of JSON for each line of code."""
    return json.dumps(document(*cells, **fields), indent=1)


def write(name: str | Path, *cells: str | dict[str, Any], **fields: Any) -> Path:
    """Write a notebook file, and make its folder."""
    path = Path(name)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text(*cells, **fields), encoding="utf-8")
    return path


def example_notebook(code: str) -> Notebook:
    """Return a notebook of an example's cells. A last line `#> KeyError: 'text'` is the error in a cell's output."""
    cells = [(c.removesuffix("\n"), c.partition("\n#> ")[2].strip()) for c in code.split(CELL_BREAK)]
    code_cells = tuple(Cell(n, "code", c, failed=error) for n, (c, error) in enumerate(cells, start=1))
    return Notebook("example", code_cells, gpu="T4")


def apply_rule(rule: Rule, code: str, options: Options) -> str:
    """Return an example's cells after one rule alone."""
    program = Program(example_notebook(code), options)
    cells = rewrite(program, [rule]).cells
    return CELL_BREAK.join(f"{text}\n" if text else "" for text in cells.values())
