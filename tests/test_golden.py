"""Each fixture's script, byte for byte.

`python -m tests.test_golden` writes the expected scripts anew; review the difference before it is committed.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from nb2ddp.convert import convert_source
from nb2ddp.script.linker import definitions

FIXTURES = Path(__file__).parent.parent / "fixtures"
NOTEBOOKS = sorted((FIXTURES / "notebooks").glob("*.ipynb"))


def expected(notebook: Path) -> Path:
    return FIXTURES / "expected" / f"{notebook.stem}.py"


def actual(notebook: Path) -> str:
    script = f"{notebook.stem}.py"
    return convert_source(notebook.read_text(encoding="utf-8"), notebook.stem, script).files[script]


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_golden(notebook: Path) -> None:
    assert actual(notebook) == expected(notebook).read_text(encoding="utf-8")


def test_no_golden_without_a_notebook() -> None:
    assert {path.stem for path in (FIXTURES / "expected").glob("*.py")} == {path.stem for path in NOTEBOOKS}


#: What all ranks must call together.
JOINT = {"gather_object", "broadcast_object_list", "wait_for_everyone"}


def joint_after_the_end(script: str) -> list[str]:
    """Return the joint calls that stand below the line at which the process group closes, as code."""
    runtime = definitions(several_machines=True)
    asks = re.compile(rf"\b({'|'.join(JOINT)})\(|\.gather\(")
    joint = JOINT | {name for name, each in runtime.items() if asks.search(each.text)}
    calls = [node for node in ast.walk(ast.parse(script)) if isinstance(node, ast.Call)]
    ends = [call.lineno for call in calls if ast.unparse(call) == "PartialState().destroy_process_group()"]
    below = [call for call in calls if ends and call.lineno > max(ends)]
    return [ast.unparse(call) for call in below if ast.unparse(call.func).rpartition(".")[2].rstrip("_") in joint]


@pytest.mark.parametrize("script", sorted(FIXTURES.glob("**/expected/*.py")), ids=lambda path: path.stem)
def test_all_ranks_are_there_for_what_they_do_together(script: Path) -> None:
    assert joint_after_the_end(script.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize("call", ["run_once(f)", "run_once_(f)", "x = gather_object([1])", "last_checkpoint(trainer)"])
def test_a_joint_call_after_the_end_is_found(call: str) -> None:
    end = "PartialState().destroy_process_group()\n"
    assert joint_after_the_end(f"{call}\n{end}print(1)\n") == []
    assert joint_after_the_end(f"{end}if not is_main_process:\n    sys.exit()\n{call}\n")


if __name__ == "__main__":
    for path in NOTEBOOKS:
        expected(path).parent.mkdir(exist_ok=True)
        expected(path).write_text(actual(path), encoding="utf-8")
