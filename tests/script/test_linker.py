"""The linker copies whole functions of the runtime, without annotations, and everything that they use into scripts."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

from nb2ddp.convert import convert_source
from nb2ddp.options import Launch, Options
from nb2ddp.script.linker import definitions, imports, link, names, process
from tests.notebooks import CELLS, text

RUNTIME = Path(__file__).parents[2] / "nb2ddp" / "runtime"
FUNCTIONS = [(several, name) for several in (False, True) for name in definitions(several)]


def bound(code: str) -> set[str]:
    """Return the names that code binds at its top level."""
    found: set[str] = set()
    for node in ast.parse(code).body:
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            found |= {(alias.asname or alias.name).split(".")[0] for alias in node.names}
        elif isinstance(node, ast.FunctionDef):
            found.add(node.name)
        elif isinstance(node, ast.Assign):
            found |= {each.id for each in ast.walk(node) if isinstance(each, ast.Name)}
    return found


def test_nothing_is_missing(tmp_path: Path) -> None:
    """Each function is linked with everything that it uses."""
    for several, name in FUNCTIONS:
        linked = link([f"{name}()"], several)
        parts = ("import os", *linked.standard, *linked.packages, process(), *linked.functions, name)
        (tmp_path / f"{name}_{several}.py").write_text("\n".join(parts), encoding="utf-8")
    ruff = [sys.executable, "-m", "ruff", "check", "--isolated", "--no-cache", "--select", "F821", str(tmp_path)]
    done = subprocess.run(ruff, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize(("several", "name"), FUNCTIONS)
def test_a_copy_is_what_stands_in_the_runtime(several: bool, name: str) -> None:
    """A copy has the same statements and comments, but no annotations, and its lines are not too long."""
    copied = definitions(several)[name].text
    assert not [line for line in copied.splitlines() if len(line) > 120]
    assert "->" not in copied
    sources = "\n".join(path.read_text() for path in RUNTIME.glob("*.py"))
    sources = re.sub(r"^(\w+): [\w\[\]]+ = ", r"\1 = ", sources, flags=re.MULTILINE)
    for line in copied.splitlines():
        assert line in sources or line.lstrip().startswith("def ")
    (node,) = ast.parse(copied).body
    assert not isinstance(node, ast.FunctionDef) or ast.get_docstring(node)


def test_the_page_has_each_function_that_inserted_code_calls() -> None:
    """The page may omit functions that only other functions call."""
    page = (RUNTIME.parents[1] / "docs" / "setup-block.md").read_text(encoding="utf-8")
    called = {name for each in definitions(several_machines=True).values() for name in each.reads}
    assert [name for name in definitions(several_machines=True) if name not in called and f"`{name}" not in page] == []


def test_annotations_go() -> None:
    text = definitions()["split_batch"].text
    assert text.startswith("def split_batch(per_device, accumulation, largest=0, notebook_gpu=15e9):\n")
    assert definitions()["reward_calls"].text.startswith("reward_calls = Counter()  # ")


def test_only_what_is_named_and_what_that_uses() -> None:
    linked = link(["a, b = split_batch(2, 4)  # or split_completions\n"])
    heads = [re.split(r"\(|  ", function)[0] for function in linked.functions]
    assert heads == ["def smallest_gpu", "def split_batch", "def split_completions"]
    linked = link(["trainer.run_once(x)", "os.split_batch", "  # TODO: go on from checkpoints\n"])
    assert linked.functions == ()


def test_imports_of_what_is_inserted() -> None:
    linked = link(["subprocess.run(x)", "PartialState().wait_for_everyone()"])
    assert linked.standard == {"import subprocess"}
    assert linked.packages == {"from accelerate import PartialState"}


def test_several_machines_have_functions_of_their_own() -> None:
    options = Options(launch=Launch(gpus=2, machines=2))
    script = convert_source(text(*CELLS), options=options).files["train.py"]
    assert script.count("def smallest_gpu(") == 1
    assert "smallest GPU of all machines" in script


OWN = """\
import os, wandb
wandb.init()
print(hash("x"))
{0} = "mine"
if not os.path.exists("rows"):
    os.makedirs("rows")
print({0})"""


@pytest.mark.parametrize("name", sorted({*names(), *imports()} - {"os"}))  # OWN itself uses os
def test_a_name_that_the_notebook_has_is_another_in_the_script(name: str) -> None:
    """The name changes in the setup block and in all inserted code; the notebook's name and all other code do not."""
    own, plain = (
        convert_source(text(OWN.format(each), *CELLS[1:], "!ls", f"print({each})")).files["train.py"]
        for each in (name, "mine")
    )
    setup, _, cells = own.partition("# %% Cell")
    assert name not in bound(setup)
    assert cells.count(f"print({name})") == 2
    put_back = own.replace(f'{name} = "mine"', 'mine = "mine"').replace(f"print({name})", "print(mine)")
    signed = re.compile(r"sha256:\w+")
    put_back = re.sub(rf"\b({name} as )?{name}_\b", name, put_back)
    assert signed.sub("", put_back) == signed.sub("", plain)


ASKS = "import requests\ntold = requests.get('https://example.org').text"


def test_an_import_of_the_same_name_from_elsewhere_is_another() -> None:
    own, same, other = (
        convert_source(text(f"from {library} import gather_object\n{ASKS}", *CELLS)).files["train.py"]
        for library in ("accelerate.utils", "accelerate.utils.operations", "torch.distributed")
    )
    assert "gather_object_" not in own + same
    assert ", gather_object as gather_object_\n" in other
    assert len(re.findall(r"gather_object\b", other)) == 2  # the notebook's import, and ours


def test_functions_of_python_that_the_notebook_hides() -> None:
    script = convert_source(text("max = 3\nprint(max)", *CELLS)).files["train.py"]
    setup, _, cells = script.partition("# %% Cell")
    assert "from builtins import max as max_\n" in setup
    assert "max_(n for n in range(" in setup
    assert not re.search(r"(?<![\w.])max\(", setup)
    assert "max = 3\nprint(max)" in cells
