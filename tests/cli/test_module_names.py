"""A script never has the name of a module: Python would import it instead of that module."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from nb2ddp import convert_source
from nb2ddp.options import LaunchError
from nb2ddp.script.modules import hidden, names_module
from tests.command import Command, files
from tests.notebooks import CELLS, markdown, text, write

TAKEN = ("unsloth", "torch", "wandb", "os", "tokenizers", "statistics", "snac", "my_helper")
#: Cells that make the last two names modules.
OWN = ("!pip install -q snac==1.2 other", "import os, my_helper as helper", *CELLS)


@pytest.mark.parametrize("name", TAKEN)
def test_the_default_name_is_another(command: Command, tmp_path: Path, name: str) -> None:
    write(f"{name}.ipynb", *OWN)
    assert command(f"{name}.ipynb").exit_code == 0
    assert files() == {f"{name}.ipynb", f"{name}_ddp.py", "accelerate_config.yaml"}
    assert command(f"{name}.ipynb", "--check").exit_code == 0
    assert command(".", "-o", "out").exit_code == 0
    assert (tmp_path / "out" / f"{name}_ddp.py").exists()


@pytest.mark.parametrize("name", TAKEN)
def test_a_name_that_is_typed_is_refused_with_another(command: Command, name: str) -> None:
    write("a.ipynb", *OWN)
    for more in (
        (),
        (
            "--keep",
            "nothing",
        ),
        ("--check",),
    ):
        result = command("a.ipynb", f"{name}.py", *more)
        assert result.exit_code == 2
        assert f"The script cannot be called '{name}.py': Python would import it" in result.stdout
        assert f"Call it {name}_ddp.py." in result.stdout
    assert files() == {"a.ipynb"}


def test_every_door_refuses_it() -> None:
    with pytest.raises(LaunchError, match=r"Call it torch_ddp\.py"):
        convert_source(text(), script_name="torch.py")


@pytest.mark.parametrize(
    "name", ["alpaca", "train", "finetune", "Llama3.1_(8B)-Alpaca", "test", "Torch", "llama-torch"]
)
def test_other_names_are_free(command: Command, name: str) -> None:
    speaks = ["import torch  # not alpaca", "rows = load_dataset('alpaca')", "!pip install alpaca-lora ./train/x"]
    speaks.append("!pip install unsloth  # to train, finetune or test on your own machine, or a rented one")
    write(f"{name}.ipynb", markdown("import the alpaca rows to train and test"), *speaks, *CELLS)
    assert command(f"{name}.ipynb").exit_code == 0
    assert Path(f"{name}.py").exists()


@pytest.mark.parametrize(
    ("code", "is_named"),
    [
        ("import snac", True),
        ("    from snac.models import SNAC", True),
        ("from snac import (\n  SNAC)", True),
        ("import os, snac.models", True),
        ("%pip install --upgrade 'snac'", True),
        ("import snack", False),
        ("from my import snac", False),
        ("# import snac", False),
        ("x = 'from snac to there'", False),
        ("!pip install git+https://github.com/x/snac.git", False),
    ],
)
def test_what_code_imports_or_installs(code: str, is_named: bool) -> None:
    assert names_module(code, "snac") == is_named


def test_files_that_hide_a_module_are_said(command: Command) -> None:
    write("a.ipynb")
    Path("torch.py").write_text("x = 1\n")
    Path("helper.py").write_text("x = 1\n")
    for folder in ("wandb", "datasets"):
        Path(folder).mkdir()
    Path("wandb/__init__.py").write_text("")
    for more in ((), ("--check",)):
        warned = [line for line in command("a.ipynb", *more).stdout.splitlines() if "DDP909" in line]
        assert warned == [
            f"a.ipynb: DDP909 warning: {path}: Python imports it in place of the package {name}, in a.py and in all "
            "scripts of this folder: rename it"
            for path, name in (("torch.py", "torch"), (Path("wandb/__init__.py"), "wandb"))
        ]


def test_a_rehearsal_refuses_such_a_script(command: Command) -> None:
    Path("torch.py").write_text("import trl\n")
    result = command("rehearse", "torch.py")
    assert (result.exit_code, result.stderr) == (
        2,
        "torch.py: Python would import it in place of the package torch: call it torch_ddp.py\n",
    )


@pytest.mark.e2e
def test_the_packages_that_training_requires_are_known() -> None:
    loaded = "import sys, transformers, trl, peft, datasets, accelerate\nprint(*{n.split('.')[0] for n in sys.modules})"
    done = subprocess.run([sys.executable, "-c", loaded], capture_output=True, text=True, check=True)
    names = {name for name in done.stdout.split() if not name.startswith("_") and name.isidentifier()}
    ours_or_none = {"nb2ddp", "cython_runtime"}
    assert {name for name in names if not hidden(name)} <= ours_or_none
