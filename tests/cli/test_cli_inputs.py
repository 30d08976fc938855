"""Every form of a notebook, wherever the command accepts one."""

from __future__ import annotations

import json
from pathlib import Path

import jupytext
import pytest

from tests.command import Command, files
from tests.notebook.test_marimo import HEAD, TRAINING
from tests.notebooks import text, write

PERCENT = jupytext.writes(jupytext.reads(text(), "ipynb"), "py:percent")


@pytest.fixture
def notebooks(tmp_path: Path) -> Path:
    """A folder with a notebook of each form, a module, and the script of an .ipynb beside it."""
    folder = tmp_path / "nb"
    write(folder / "a.ipynb")
    (folder / "below").mkdir()
    (folder / "below" / "b.py").write_text(TRAINING)
    (folder / "c.py").write_text(PERCENT)
    (folder / "module.py").write_text("x = 1\n")
    (folder / "a.py").write_text(PERCENT)
    return folder


class TestFolder:
    @pytest.mark.parametrize("argument", ["nb", "nb/**/*"])
    def test_takes_the_python_files_that_are_notebooks(self, command: Command, notebooks: Path, argument: str) -> None:
        assert command(argument, "-o", "out").exit_code == 0
        written = {name for name in files(notebooks.parent / "out") if name.endswith(".py")}
        assert written == {"a.py", "below/b.py", "c.py"}
        assert command(argument, "-o", "out", "--check").exit_code == 0

    def test_leaves_out_what_it_wrote(self, command: Command, notebooks: Path) -> None:
        command(".", "-o", "out")
        again = command(".", "-o", "out", "--check")
        assert again.exit_code == 0
        assert "3 notebooks" in again.stderr


class TestOne:
    @pytest.mark.parametrize("name", ["below/b.py", "c.py"])
    def test_converts_checks_and_shows_the_difference(self, command: Command, notebooks: Path, name: str) -> None:
        default = f"{Path(name).stem}_ddp.py"
        assert command(f"nb/{name}", default).exit_code == 0
        script = (notebooks.parent / default).read_text()
        assert "local_rank" in script
        assert command(f"nb/{name}", default, "--check").exit_code == 0
        assert command(f"nb/{name}", default, "--diff").stdout == ""
        assert command(f"nb/{name}", "-").stdout == script

    def test_findings_stand_at_the_lines_of_the_file(self, command: Command, notebooks: Path) -> None:
        lines = TRAINING.split("\n")
        number = next(n for n, line in enumerate(lines, start=1) if "from_pretrained" in line)
        column = lines[number - 1].index("FastLanguageModel.") + 1
        result = command("nb/below/b.py", "train.py", "--verbose")
        assert f"nb/below/b.py:{number}:{column}: DDP101" in result.stdout
        document = json.loads(command("nb/below/b.py", "train.py", "--format", "sarif").stdout)
        (found,) = [each for each in document["runs"][0]["results"] if each["ruleId"] == "DDP101"]
        region = found["locations"][0]["physicalLocation"]["region"]
        assert region == {"startLine": number, "startColumn": column}
        github = command("nb/below/b.py", "train.py", "--format", "github", "--verbose").stdout
        assert f"file=nb/below/b.py,line={number},col={column},title=DDP101" in github


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        (
            "x.py",
            HEAD + "@app.cell\ndef _():\n    x = = 1\n    return\n",
            "x.py:8: DDP001 error: not a marimo notebook",
        ),
        ("x.py", "import torch\n", "x.py: DDP001 error: a Python file without cells"),
        ("x.qmd", "# Title\n", "x.qmd: DDP001 error: not a notebook that is read here: a Quarto notebook"),
        ("x.py", "# %%\nx = = 1\n", "x.py:2:5: DDP001 error: the cell is not Python"),
    ],
)
def test_bad_input_gets_one_line_and_nothing_is_written(
    command: Command, name: str, content: str, message: str
) -> None:
    Path(name).write_text(content)
    result = command(name, "train.py")
    assert result.exit_code == 2
    assert message in result.stdout
    assert files() == {name}
