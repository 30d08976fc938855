"""A job whose needs are not there ends in its first second, in every process alike."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from nb2ddp.convert import convert_source
from nb2ddp.facts.program import Program
from nb2ddp.options import Options
from nb2ddp.script.needs import stated, untested
from nb2ddp.script.secrets import secrets
from tests.notebooks import code, example_notebook, text

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
    places = "see the first lines of this script; change a path in its cell and in the check at the top"
    said = f"Missing: HUB_TOKEN, /content/rows.csv ({places})\n"
    assert done.stderr == (said if rank == "0" else "")


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


def test_an_uploaded_file_is_looked_for_at_the_start() -> None:
    said = {"output_type": "stream", "name": "stdout", "text": ["Saving my rows.csv to rows (1).csv\n"]}
    upload = code("from google.colab import files\nfiles.upload()", outputs=[said])
    read = 'import pandas as pd\nrows = pd.read_csv("rows (1).csv")\nmore = pd.read_csv("more.csv")'
    done = convert_source(text(upload, read, TRAIN))
    assert done.needs == ("rows (1).csv beside the script (cell 2)", "more.csv beside the script (cell 2)")
    assert 'missing = [path for path in ("rows (1).csv", "more.csv") if' in done.files["train.py"]


def test_an_uploaded_file_whose_content_is_used_is_named() -> None:
    said = {"output_type": "stream", "name": "stdout", "text": ["Saving a.pdf to a.pdf\n"]}
    upload = code("from google.colab import files\ndone = files.upload()\ntext = done.popitem()", outputs=[said])
    assert convert_source(text(upload, TRAIN)).needs == ("a.pdf in place of files.upload() (cell 1)",)


@pytest.mark.parametrize("is_there", [False, True])
def test_a_job_ends_at_once_without_a_file_that_it_reads_after_training(is_there: bool, tmp_path: Path) -> None:
    source = convert_source(text(TRAIN, 'rows = open("rows.txt").read()')).files["train.py"]
    (tmp_path / "train.py").write_text(source[: source.index("import torch")])
    if is_there:
        (tmp_path / "rows.txt").write_text("")
    done = subprocess.run([sys.executable, "train.py"], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == (0 if is_there else 1)
    assert ("Missing: rows.txt (" in done.stderr) is not is_there


def test_a_rehearsal_leaves_the_lines_blank() -> None:
    played = untested(script())
    assert "missing" not in played
    assert played.count("\n") == script().count("\n")
    compile(played, "train.py", "exec")


@pytest.mark.parametrize("token", ["", "hf_abc"])
def test_an_upload_after_training_looks_for_its_token_at_the_start(token: str, tmp_path: Path) -> None:
    source = convert_source(text(TRAIN, 'model.push_to_hub("a/b")')).files["train.py"]
    assert "missing" not in untested(source)
    (tmp_path / "train.py").write_text(source[: source.index("import torch")])
    environ = {"PATH": os.environ["PATH"], "HF_HOME": str(tmp_path), **({"HF_TOKEN": token} if token else {})}
    done = subprocess.run([sys.executable, "train.py"], cwd=tmp_path, env=environ, capture_output=True, text=True)
    assert done.stderr == ("" if token else "Missing: HF_TOKEN (see the first lines of this script)\n")
    assert done.returncode == (0 if token else 1)


@pytest.mark.parametrize(
    "line", ['os.environ["A_KEY"] = getpass()', 'key = os.environ["A_KEY"]\nos.environ["A_KEY"] = "a"']
)
def test_a_launcher_hands_on_what_is_needed_though_it_is_set_too(line: str) -> None:
    notebook = example_notebook(f"import os\nfrom getpass import getpass\n{line}\n")
    assert secrets(Program(notebook, Options())) == ["A_KEY"]


@pytest.mark.parametrize("is_open", [False, True])
def test_a_job_ends_at_once_without_a_folder_that_it_may_write_into(is_open: bool, tmp_path: Path) -> None:
    source = convert_source(text(TRAIN, 'model.save_pretrained("/data/lora")')).files["train.py"]
    asked = f"import os\nos.access = lambda path, mode: {is_open}\n"  # root may write anywhere
    (tmp_path / "train.py").write_text(asked + source[: source.index("import torch")])
    done = subprocess.run([sys.executable, "train.py"], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == (0 if is_open else 1)
    assert done.stderr.startswith("" if is_open else "Missing: /data/lora (see")
    environ = {**os.environ, "RANK": "1", "WORLD_SIZE": "2"}  # it ends alike, and says nothing
    other = subprocess.run([sys.executable, "train.py"], cwd=tmp_path, env=environ, capture_output=True)
    assert (other.returncode, other.stderr) == (done.returncode, b"")


@pytest.mark.parametrize(
    ("variable", "file", "ends"),
    [
        ("WANDB_PROJECT", "", True),
        ("WANDB_API_KEY", "", False),
        ("WANDB_MODE", "", False),
        ("WANDB_PROJECT", ".netrc", False),
        ("WANDB_PROJECT", "wandb/settings", False),
    ],
)
def test_a_job_ends_at_once_without_a_key_for_its_log(variable: str, file: str, ends: bool, tmp_path: Path) -> None:
    source = convert_source(text('import wandb\nwandb.init(project = "rows")', TRAIN)).files["train.py"]
    (tmp_path / "train.py").write_text(source[: source.index("import torch")])
    if file:
        (tmp_path / file).parent.mkdir(exist_ok=True)
        (tmp_path / file).write_text("")
    for rank in ("0", "1"):
        environ = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "USERPROFILE": str(tmp_path), variable: "x"}
        environ |= {"RANK": rank, "WORLD_SIZE": "2"}
        done = subprocess.run([sys.executable, "train.py"], cwd=tmp_path, env=environ, capture_output=True, text=True)
        assert done.returncode == (1 if ends else 0)
        assert done.stderr.startswith("Missing: WANDB_API_KEY (see") == (ends and rank == "0")
