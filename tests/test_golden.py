"""Notebooks and their scripts, byte for byte. Together they show every rule that public notebooks often need.

`pytest tests/test_golden.py --update` or `python -m tests.test_golden` renews the expected files. Review the difference
before you commit it.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from nb2ddp.convert import convert_source
from nb2ddp.results import NotebookError
from nb2ddp.script.linker import definitions

FIXTURES = Path(__file__).parent.parent / "fixtures"
EXPECTED = FIXTURES / "expected"
#: Whole notebooks, and small ones that each show a few constructs.
NOTEBOOKS = sorted([*FIXTURES.glob("notebooks/*.ipynb"), *FIXTURES.glob("constructs/*.ipynb")])


def result(notebook: Path) -> tuple[str, str]:
    """Return the name and the text of a notebook's result: a script or a refusal."""
    script = f"{notebook.stem}.py"
    try:
        done = convert_source(notebook.read_text(encoding="utf-8"), notebook.stem, script)
    except NotebookError as error:
        return f"{notebook.stem}.refusal.txt", f"{error.code}\n{error.location or 'the file'}\n{error.message}\n"
    return script, done.files[script]


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_script_or_refusal(notebook: Path, golden: Callable[[Path, str], None]) -> None:
    name, text = result(notebook)
    golden(EXPECTED / name, text)


def test_no_golden_without_a_notebook() -> None:
    assert sorted(path.name.split(".")[0] for path in EXPECTED.iterdir()) == sorted(path.stem for path in NOTEBOOKS)


#: Functions that all ranks must call together.
JOINT = {"gather_object", "broadcast_object_list", "wait_for_everyone"}


def joint_after_the_end(script: str) -> list[str]:
    """Return the code of the joint calls below the line that closes the process group."""
    runtime = definitions(several_machines=True)
    asks = re.compile(rf"\b({'|'.join(JOINT)})\(|\.gather\(")
    joint = JOINT | {name for name, each in runtime.items() if asks.search(each.text)}
    calls = [node for node in ast.walk(ast.parse(script)) if isinstance(node, ast.Call)]
    ends = [call.lineno for call in calls if ast.unparse(call) == "PartialState().destroy_process_group()"]
    below = [call for call in calls if ends and call.lineno > max(ends)]
    return [ast.unparse(call) for call in below if ast.unparse(call.func).rpartition(".")[2].rstrip("_") in joint]


@pytest.mark.parametrize("script", sorted(EXPECTED.glob("*.py")), ids=lambda path: path.stem)
def test_all_ranks_are_there_for_what_they_do_together(script: Path) -> None:
    assert joint_after_the_end(script.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize("call", ["run_once(f)", "x = gather_object([1])"])
def test_a_joint_call_after_the_end_is_found(call: str) -> None:
    end = "PartialState().destroy_process_group()\n"
    assert joint_after_the_end(f"{call}\n{end}print(1)\n") == []
    assert joint_after_the_end(f"{end}if not is_main_process:\n    sys.exit()\n{call}\n")


if __name__ == "__main__":
    sys.exit(pytest.main([__file__, "--update", "-q"]))
