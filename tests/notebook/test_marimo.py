"""marimo notebooks: what is read from them, in which order, and what is refused."""

from __future__ import annotations

import pytest

from nb2ddp.convert import convert_source
from nb2ddp.notebook.ipynb import Cell, Metadata
from nb2ddp.notebook.marimo import parse_marimo
from nb2ddp.results import NotebookError

HEAD = "import marimo\n\napp = marimo.App()\n\n\n"
TRAINING = '''\
# /// script
# requires-python = ">=3.10"
# dependencies = [
#     "marimo",
#     "trl==0.22.2",
# ]
# ///

import marimo

__generated_with = "0.23.8"
app = marimo.App(width="medium")

with app.setup:
    # before everything
    import os


@app.cell(hide_code=True)
def _(mo):
    mo.md(r"""
    # Title

    Some *text*.
    """)
    return


@app.cell
def _(FastLanguageModel, name):
    model, tokenizer = FastLanguageModel.from_pretrained(name)
    return model, tokenizer


@app.cell
def _():
    from unsloth import FastLanguageModel

    name = "unsloth/Llama-3.2-1B"
    prompt = """one

    two"""
    kept = """
  less indented"""
    return FastLanguageModel, name


@app.function
# counts
def double(x):
    return 2 * x


@app.cell
def _(double, model):
    from trl import SFTConfig, SFTTrainer
    args = SFTConfig(per_device_train_batch_size=double(1), gradient_accumulation_steps=4)
    trainer = SFTTrainer(model=model, args=args)
    trainer.train()
    # the end
    return


@app.cell
def _():
    import marimo as mo
    return (mo,)


if __name__ == "__main__":
    app.run()
'''


def cells(text: str) -> list[Cell]:
    return list(parse_marimo(text, "x").cells)


def failure(text: str) -> NotebookError:
    with pytest.raises(NotebookError) as raised:
        parse_marimo(text, "x")
    return raised.value


class TestCells:
    def test_come_in_the_order_in_which_marimo_runs_them(self) -> None:
        found = cells(TRAINING)
        assert [(cell.number, cell.kind) for cell in found] == [
            (1, "code"), (4, "code"), (2, "markdown"), (3, "code"), (5, "code"), (6, "code"), (7, "code"),
        ]  # fmt: skip
        assert found[0].source == "# before everything\nimport os"
        assert found[2].source == "# Title\n\nSome *text*."
        assert found[4].source == "# counts\ndef double(x):\n    return 2 * x"
        assert found[5].source.endswith("trainer.train()\n# the end")

    def test_strings_lose_the_indentation_of_their_cell_unless_a_line_has_less(self) -> None:
        assert 'prompt = """one\n\ntwo"""\nkept = """\n  less indented"""' in cells(TRAINING)[1].source

    def test_lines_are_those_of_the_file(self) -> None:
        lines = TRAINING.split("\n")
        for cell in cells(TRAINING):
            if cell.kind == "code":
                own = [lines[number - 1].strip() for number in cell.lines]
                assert own == [line.strip() for line in cell.source.split("\n")]

    def test_header_gives_the_packages(self) -> None:
        assert parse_marimo(TRAINING, "x").metadata == Metadata(("marimo", "trl==0.22.2"), ">=3.10")

    def test_a_disabled_cell_and_those_that_need_it_do_not_run(self) -> None:
        text = HEAD + (
            "@app.cell(disabled=True)\ndef _():\n    x = 1\n    return (x,)\n\n"
            "@app.cell\ndef _(x):\n    print(x)\n    return\n\n@app.cell\ndef _():\n    y = 2\n    return\n"
        )
        assert [cell.kind for cell in cells(text)] == ["raw", "raw", "code"]

    def test_names_of_one_cell_may_be_those_of_another(self) -> None:
        body = "    _x = 1\n    try:\n        pass\n    except ValueError as e:\n        raise\n    return\n\n"
        cell = f"@app.cell\ndef _():\n{body}"
        assert len(cells(HEAD + cell + cell)) == 2

    def test_forms_that_only_a_person_writes(self) -> None:
        text = HEAD + (
            "@app.cell\nasync def _(\n    # why\n    x,\n) -> None:\n    # first\n    await x\n\n"
            "@app.class_definition\nclass A:\n    pass\n\n@app.cell\ndef _():\n    return\n\n"
            'app._unparsable_cell(\n    r"""\n    x = = 1\n    """,\n    name="_"\n)\n'
        )
        assert [cell.source for cell in cells(text)] == ["# first\nawait x", "class A:\n    pass", "", "x = = 1"]


class TestRefusal:
    def test_of_what_is_not_python_names_the_line(self) -> None:
        error = failure(HEAD + "@app.cell\ndef _():\n    x = = 1\n    return\n")
        assert (error.diagnostic.file_line, error.diagnostic.line_text) == (8, "    x = = 1")
        assert str(error) == "not a marimo notebook: not Python (invalid syntax)"

    def test_of_a_name_that_two_cells_define(self) -> None:
        cell = "@app.cell\ndef _():\n    x = 1\n    return\n\n"
        error = failure(HEAD + cell + cell)
        assert str(error) == "marimo would not run this notebook: cells 1 and 2 both define `x`"
        assert error.diagnostic.file_line == 13

    def test_of_a_name_of_two_cells_that_a_function_reads(self) -> None:
        cell = "@app.cell\ndef _():\n    _x = 1\n    def {}():\n        return _x\n    return\n\n"
        error = failure(HEAD + cell.format("f") + cell.format("g"))
        assert str(error).startswith("cells 1 and 2 have a `_x` of their own, which a function reads")
        assert len(cells(HEAD + cell.format("f"))) == 1

    def test_of_cells_that_wait_for_each_other(self) -> None:
        text = HEAD + "@app.cell\ndef _(y):\n    x = y\n    return\n\n@app.cell\ndef _(x):\n    y = x\n    return\n"
        assert "cells 1, 2 wait for each other's names" in str(failure(text))

    def test_of_a_header_that_is_no_toml(self) -> None:
        assert "is not TOML" in str(failure("# /// script\n# dependencies = [\n# ///\n" + HEAD))


def test_converts_with_the_lines_of_the_file() -> None:
    done = convert_source(TRAINING, "x", "t.py", None, "x.py")
    script = done.files["t.py"]
    assert "split_batch(double(1), 4, largest=double(1))" in script
    assert "device_map=local_rank" in script
    assert "marimo" not in script
    placed = next(each for each in done.diagnostics if each.code == "DDP101")
    line = TRAINING.split("\n")[(placed.file_line or 0) - 1]
    assert line[(placed.file_column or 0) - 1 :].startswith("FastLanguageModel.from_pretrained(name)")
