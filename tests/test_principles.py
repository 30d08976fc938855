"""The program that counts where scripts break a principle."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import principles
from nb2ddp.convert import convert_source
from tests.notebooks import text

HEAD = "#   needs:         a GPU for each process\n\n# %% Distributed setup\nimport os\n\n# %% Cell 1\n"
END = """
# %% Training is over: the main process runs the rest of the notebook alone
PartialState().wait_for_everyone()
if not is_main_process:
    sys.exit()
"""


@pytest.mark.parametrize(
    ("cell", "script", "name"),
    [
        ("!pip install x\nimport json", "", "P1 a line lost with an install"),
        ("model.report()", "", "P2 a value shown by a cell, and not by the script"),
        ("x = 1", f"{END}\nif is_main_process:\n    save()\n", "P3 several processes where there is one"),
        ("x = 1", 'x = os.environ["A_KEY"]\n', "P4 a variable that is read and not named at the top"),
        ("x = 1", 'x = "hf_aBcD1234eFgH5678iJkL"\n', "P4 a token that is not named at the top"),
        (
            "x = 1",
            "a = split(2, 4)  # 8 samples a step, as in the notebook\n",
            "P5 a comment that more GPUs make untrue",
        ),
        (
            "x = 1",
            "try:\n    if local_rank == 0:\n        write()\n    rows = read()\nexcept OSError:\n    pass\n",
            "P6 a line between a write and the wait for it, in a try",
        ),
        ("x = 1", "demo.launch(share=True)\n", "P6 a server at which a script stops, without a word"),
        ("!ls", "# the rows\n", "clutter: a comment whose code is gone"),
    ],
)
def test_counts_what_breaks_a_principle(cell: str, script: str, name: str) -> None:
    found = principles.counts([cell], HEAD + script)
    assert {key: number for key, number in found.items() if number} == {name: 1}


def test_counts_none_in_what_is_converted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    train = "from trl import SFTTrainer\ntrainer = SFTTrainer()\ntrainer.train()"
    cells = ("!pip install x\nimport json", train, "json.dumps({})")
    (tmp_path / "rows.ipynb").write_text(text(*cells))
    principles.main([str(tmp_path)])
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "1 scripts"
    assert all(line.split()[0] == "0" for line in lines[1:])
    script = convert_source(text(*cells)).files["train.py"].replace("import json\n", "", 1)
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "rows.py").write_text(script)
    principles.main(["--scripts", str(tmp_path / "out"), str(tmp_path)])
    assert "    1 in   1  P1 a line lost with an install" in capsys.readouterr().out.splitlines()
