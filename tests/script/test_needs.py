"""A job that lacks one of its needs ends in its first second, in every process."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from nb2ddp.convert import convert_source
from nb2ddp.facts.program import Program
from nb2ddp.options import Options
from nb2ddp.script.needs import secrets, stated, untested
from tests.notebooks import example_notebook, text

BEFORE = 'rows = open("/content/rows.csv").read()'
TRAIN = "from trl import SFTTrainer\ntrainer = SFTTrainer()\ntrainer.train()"
AFTER = 'from google.colab import userdata\ntoken = userdata.get("HUB_TOKEN")'


def script() -> str:
    return convert_source(text(BEFORE, TRAIN, AFTER)).files["train.py"]


@pytest.mark.parametrize("rank", ["0", "1"])
def test_the_job_ends_where_something_is_missing(rank: str, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(script())
    environ = {"PATH": os.environ["PATH"], "RANK": rank, "WORLD_SIZE": "2", "LOCAL_RANK": rank}
    done = subprocess.run([sys.executable, "train.py"], cwd=tmp_path, env=environ, capture_output=True, text=True)
    assert done.returncode == 1
    message = "Missing: HUB_TOKEN (see the first lines of this script)\n"
    assert done.stderr == (message if rank == "0" else "")


def test_the_first_lines_name_what_the_job_needs() -> None:
    assert "#   needs:         /content/rows.csv (cell 1); HUB_TOKEN (cell 3)\n" in script()
    needs = convert_source(text(BEFORE, TRAIN, AFTER)).needs
    assert needs == ("/content/rows.csv (cell 1)", "HUB_TOKEN (cell 3)")


def test_a_rehearsal_reads_the_list_again() -> None:
    many = "\n".join(f'a = open("/content/{"rows" * 9}{number}.csv").read()' for number in range(4))
    done = convert_source(text(many, TRAIN))
    assert stated(done.files["train.py"]) == list(done.needs)
    assert stated("import os\n") == []


def test_a_job_that_needs_nothing_looks_for_nothing() -> None:
    plain = convert_source(text(TRAIN)).files["train.py"]
    assert "needs:" not in plain
    assert "missing" not in plain


def test_a_file_is_named_and_not_looked_for() -> None:
    done = convert_source(text('rows = open("rows.txt").read()', TRAIN))
    assert done.needs == ("rows.txt beside the script (cell 1)",)
    assert "missing" not in done.files["train.py"]


IF_MISSING = (
    'import os\nif not os.getenv("A_KEY"):\n    print("Give a key.")\n    key = input("key? ").strip()\nprint(key)'
)


@pytest.mark.parametrize(
    ("cell", "at_start"),
    [
        ('import os\nkey = os.environ["A_KEY"]\nprint(key)', True),
        ('key = input("A_KEY: ")\nprint(key)', True),
        (IF_MISSING, True),
        ('import os\nkey = os.getenv("A_KEY")\nif not key:\n    key = input("key? ")\nprint(key)', False),
        (
            'import os\nif "A_KEY" in os.environ:\n    key = os.environ["A_KEY"]\nelse:\n    key = "none"\nprint(key)',
            None,
        ),
    ],
)
def test_a_script_with_its_variable_and_without(cell: str, at_start: bool | None, tmp_path: Path) -> None:
    source = convert_source(text(cell, TRAIN)).files["train.py"]
    start, cells = source.index("import torch"), source.index(cell.split("\n")[0][:6], source.index("# %% Cell 1"))
    (tmp_path / "train.py").write_text(source[:start] + source[cells : source.index("from trl")])
    environ = {"PATH": os.environ["PATH"]}
    run = {"cwd": tmp_path, "capture_output": True, "text": True}
    given = subprocess.run([sys.executable, "train.py"], env={**environ, "A_KEY": "a"}, **run)  # type: ignore[call-overload]
    lacking = subprocess.run([sys.executable, "train.py"], env=environ, **run)  # type: ignore[call-overload]
    assert (given.returncode, given.stdout.splitlines()[-1:]) == (0, ["a"])
    assert lacking.returncode == (0 if at_start is None else 1)
    assert lacking.stderr.startswith("Missing: A_KEY (see") is (at_start is True)
    assert ("KeyError: 'A_KEY'" in lacking.stderr) is (at_start is False)


def test_a_rehearsal_leaves_the_lines_blank() -> None:
    played = untested(script())
    assert "missing" not in played
    assert played.count("\n") == script().count("\n")
    compile(played, "train.py", "exec")


@pytest.mark.parametrize(
    "line", ['os.environ["A_KEY"] = getpass()', 'key = os.environ["A_KEY"]\nos.environ["A_KEY"] = "a"']
)
def test_a_launcher_hands_on_what_is_needed_though_it_is_set_too(line: str) -> None:
    notebook = example_notebook(f"import os\nfrom getpass import getpass\n{line}\n")
    assert secrets(Program(notebook, Options())) == ["A_KEY"]
