"""Texts that the machine decides on which a script runs."""

from __future__ import annotations

import os
from pathlib import Path

import libcst as cst
import pytest

from nb2ddp.facts.computed import Code, computed
from nb2ddp.syntax.tree import Tree

BEFORE = "import os, sys\nfrom pathlib import Path\nROOT = Path.home() / 'runs'\nNAME = 'hf'\n"


def of(expression: str) -> object:
    """What becomes of an expression that stands below some names."""
    tree = Tree(f"{BEFORE}value = {expression}\n")
    return computed(tree, tree.of(cst.Assign)[-1].value)


@pytest.mark.parametrize(
    "expression",
    [
        "os.path.expanduser('~/venvs/gpu')",
        "str(Path.home() / 'a' / NAME)",
        "str(ROOT)",
        "f'{ROOT}/{NAME}'",
        "str(Path('~/a').expanduser())",
        "os.path.join(os.path.expanduser('~'), 'a')",
        "':'.join([os.path.expanduser('~/a'), '{b}'])",
        "os.path.dirname(os.path.expanduser('~/a/b')) + '/c'",
    ],
)
def test_code_gives_the_text(expression: str) -> None:
    names = {"os": os, "Path": Path}
    exec(BEFORE, names)
    code = of(expression)
    assert isinstance(code, Code)
    assert eval(code, {"os": os}) == eval(expression, names)


def test_constants_are_worked_out() -> None:
    assert [of("','.join(['a', 'b'])"), of("str(4)")] == ["a,b", "4"]


@pytest.mark.parametrize(
    "expression",
    ["os.getcwd()", "os.path.abspath('a')", "':'.join(sys.argv)", "f'{ROOT!r}'", "os.path.join(*sys.argv)", "str()"],
)
def test_other_texts_stay(expression: str) -> None:
    assert of(expression) is ...
