"""Reading a notebook file."""

from __future__ import annotations

import json
from typing import Any

import pytest

from nb2ddp.notebook.ipynb import Cell, parse_notebook
from nb2ddp.results import NotebookError
from tests.notebooks import code, markdown, text


def cells(content: str) -> list[tuple[str, str]]:
    return [(cell.kind, cell.source) for cell in parse_notebook(content, "name").cells]


def test_cells_count_from_one() -> None:
    notebook = parse_notebook(text(markdown("# Title"), "x = 1"), "name")
    assert notebook.name == "name"
    assert notebook.cells == (Cell(1, "markdown", "# Title"), Cell(2, "code", "x = 1"))


@pytest.mark.parametrize(
    ("source", "read"),
    [
        ("x = 1\ny = 2", "x = 1\ny = 2"),
        (["x = 1\n", "y = 2"], "x = 1\ny = 2"),
        ([], ""),
        ("x\r\ny\rz\n", "x\ny\nz\n"),
        ("x  \n\t\n", "x  \n\t\n"),
        ("\n  !ls\n  if x:\n    y\n\n z\n", "\n!ls\nif x:\n  y\n\n z\n"),
        ("# a\n  x", "# a\n  x"),
        ("é\u2028\x0c", "é\u2028\x0c"),
    ],
)
def test_source(source: str | list[str], read: str) -> None:
    assert cells(text(code(source))) == [("code", read)]


@pytest.mark.parametrize(
    "fields",
    [
        {"metadata": {"widgets": {"broken": 1}}},
        {"metadata": {"kernelspec": {"name": "python3", "display_name": "Python 3"}}},
        {"metadata": {"language_info": {"name": "python"}}},
        {"metadata": {"language_info": {"name": "Python3"}}},
        {"metadata": {"language_info": {"name": "ipython"}}},
        {"metadata": {"kernelspec": {"language": "python", "name": "x", "display_name": "x"}}},
        {"nbformat_minor": 0},
        {"nbformat_minor": 5},
        {"unknown": 1},
    ],
)
def test_what_is_read_all_the_same(fields: dict[str, Any]) -> None:
    assert cells(text("x", **fields)) == [("code", "x")]


@pytest.mark.parametrize(
    "fields",
    [
        {"id": "a"},
        {"attachments": {"a.png": {}}},
        {"outputs": [{"output_type": "nonsense"}]},
        {"execution_count": 3},
        {"metadata": {"id": "x", "colab": {"base_uri": "y"}}},
    ],
)
def test_what_a_cell_may_hold(fields: dict[str, Any]) -> None:
    assert cells(text(code("x", **fields), code("x", **fields))) == [("code", "x")] * 2


def test_saved_outputs_tell_what_a_cell_showed() -> None:
    result = {"output_type": "execute_result", "execution_count": 1, "data": {"text/plain": "3"}, "metadata": {}}
    failed = {"output_type": "error", "ename": "E", "evalue": "e", "traceback": []}
    saved = [
        code("1 + 2", outputs=[result]),
        code("f()", execution_count=2),
        code("g()"),
        code("h()", outputs=[failed]),
    ]
    assert [each.shows for each in parse_notebook(text(*saved), "n").cells] == [True, False, None, None]
    assert parse_notebook(text(code("f()", execution_count=2)), "n").cells[0].shows is None


def test_markdown_keeps_its_indent() -> None:
    assert cells(text(markdown("    code"))) == [("markdown", "    code")]


def test_raw_cells() -> None:
    assert cells(text({"cell_type": "raw", "metadata": {}, "source": "a"})) == [("raw", "a")]


def test_byte_order_mark() -> None:
    assert cells("\ufeff" + text("x")) == [("code", "x")]


def test_nbformat_3() -> None:
    old = {
        "nbformat": 3,
        "nbformat_minor": 0,
        "metadata": {"name": ""},
        "worksheets": [
            {
                "metadata": {},
                "cells": [
                    {"cell_type": "heading", "level": 2, "metadata": {}, "source": ["Title"]},
                    {
                        "cell_type": "code",
                        "language": "python",
                        "metadata": {},
                        "collapsed": False,
                        "input": ["x = 1\n", "y"],
                        "outputs": [],
                    },
                ],
            }
        ],
    }
    assert cells(json.dumps(old)) == [("markdown", "## Title"), ("code", "x = 1\ny")]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "not valid JSON"),
        ("x = 1", "not valid JSON"),
        ("[" * 100_000, "not valid JSON"),
        ("[]", "no 'nbformat' key"),
        ("{}", "no 'nbformat' key"),
        ('"text"', "no 'nbformat' key"),
        ('{"nbformat": 4}', "not a valid notebook"),
        ('{"nbformat": "four"}', "not a valid notebook"),
        (text("x", cells=[{"cell_type": "code"}]), "not a valid notebook"),
        (text("x", cells=[1]), "not a valid notebook"),
        (text({**code("x"), "source": 1}), "not a valid notebook"),
        (text("x", metadata={"language_info": {"name": "R"}}), "language is 'r'"),
        (text("x", metadata={"kernelspec": {"name": "j", "display_name": "J", "language": "Julia"}}), "is 'julia'"),
    ],
)
def test_refused(content: str, message: str) -> None:
    with pytest.raises(NotebookError) as error:
        parse_notebook(content, "name")
    assert message in error.value.message
    assert "\n" not in error.value.message
    assert error.value.code == "DDP001"
