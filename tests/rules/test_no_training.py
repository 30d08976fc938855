"""Where the refusal of a notebook that trains nothing points."""

from __future__ import annotations

import pytest

from nb2ddp import NotebookError, convert_source
from tests.notebooks import text

HEAD = "%%capture\n!pip install unsloth"


@pytest.mark.parametrize(
    ("cell", "place", "says"),
    [
        ("import subprocess\nsubprocess.run(['python', 'train.py'])", "cell 3:2:1", "a program of its own"),
        ("import subprocess, sys\ncmd = [sys.executable, 'sft.py']\nsubprocess.Popen(cmd)", "cell 3:3:1", "program"),
        ("!llamafactory-cli train config.yaml", "cell 3:1:1", "a program of its own"),
        ("print(1)\n!cd repo && python -u scripts/finetune.py --lr 1", "cell 3:2:1", "a program of its own"),
        ("%run train.py", "cell 3:1:1", "a program of its own"),
        ("%%bash\npython -m recipes.train", "cell 3:1:1", "a program of its own"),
        ("from recipes import run_training\nrun_training(config)", "cell 3:2:1", "run_training() seems to train"),
        ("import recipes.sft as r\nr.finetune('a')", "cell 3:2:1", "r.finetune() seems to train"),
        ("parts = rows.train_test_split(0.1)\nmodel.train()", "cell 2:2:20", "no training was found"),
        ("!python generate.py --out trained.txt", "cell 2:2:20", "no training was found"),
        ("%%writefile train.py\npython train.py", "cell 2:2:20", "no training was found"),
    ],
)
def test_the_refusal_points_at_what_trains(cell: str, place: str, says: str) -> None:
    load = 'from unsloth import FastModel\nmodel, tokenizer = FastModel.from_pretrained("m")'
    with pytest.raises(NotebookError) as refused:
        convert_source(text(HEAD, load, cell))
    assert refused.value.code == "DDP002"
    assert str(refused.value).startswith(f"{place}: ")
    assert says in refused.value.message


def test_a_notebook_without_a_model_is_refused_at_its_first_line() -> None:
    with pytest.raises(NotebookError, match=r"^cell 1:1:1: no training was found"):
        convert_source(text("x = 1"))
