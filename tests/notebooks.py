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

#: What stands between two cells of a rule's example.
CELL_BREAK = "# %%\n"
#: The cells of the smallest notebook that trains: what `MINIMAL` says, each rule has its place in.
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
    """A code cell as JSON has it."""
    return {"cell_type": "code", "metadata": {}, "outputs": [], "execution_count": None, "source": source, **fields}


def markdown(source: str) -> dict[str, Any]:
    """A Markdown cell as JSON has it."""
    return {"cell_type": "markdown", "metadata": {}, "source": source}


def document(*cells: str | dict[str, Any], **fields: Any) -> dict[str, Any]:
    """A notebook as JSON has it; strings are code cells."""
    made = [code(cell) if isinstance(cell, str) else cell for cell in cells or CELLS]
    colab = {"colab": {"gpuType": "T4"}}
    return {"nbformat": 4, "nbformat_minor": 4, "metadata": colab, "cells": made, **fields}


def text(*cells: str | dict[str, Any], **fields: Any) -> str:
    """A notebook file's content, one line of JSON for each line of code, as Jupyter writes it."""
    return json.dumps(document(*cells, **fields), indent=1)


def write(name: str | Path, *cells: str | dict[str, Any], **fields: Any) -> Path:
    """Write a notebook file; its folder is made."""
    path = Path(name)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text(*cells, **fields), encoding="utf-8")
    return path


def example_notebook(code: str) -> Notebook:
    """A notebook of an example's cells; a last line `#> KeyError: 'text'` is the error that a cell's output shows."""
    cells = [(c.removesuffix("\n"), c.partition("\n#> ")[2].strip()) for c in code.split(CELL_BREAK)]
    code_cells = tuple(Cell(n, "code", c, failed=error) for n, (c, error) in enumerate(cells, start=1))
    return Notebook("example", code_cells, gpu="T4")


def apply_rule(rule: Rule, code: str, options: Options) -> str:
    """What one rule alone makes of an example's cells."""
    program = Program(example_notebook(code), options)
    cells = rewrite(program, [rule]).cells
    return CELL_BREAK.join(f"{text}\n" if text else "" for text in cells.values())
