"""Settings in pyproject.toml."""

from __future__ import annotations

from pathlib import Path

import pytest

from nb2ddp.project.config import KEYS
from tests.command import Command, files, read
from tests.examples import rows
from tests.notebooks import CELLS, write


def configure(folder: Path, text: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "pyproject.toml").write_text(f"[tool.nb2ddp]\n{text}", encoding="utf-8")


def test_settings_are_found_upwards_from_the_notebook(command: Command, tmp_path: Path) -> None:
    configure(tmp_path / "project", "gpus = 8\nlauncher = 'torchrun'\nignore = ['DDP101']\n")
    Path("project/nb/pyproject.toml").parent.mkdir()
    Path("project/nb/pyproject.toml").write_text("[project]\nname = 'x'\n")
    write("project/nb/deep/a.ipynb")
    assert command("project/nb/deep/a.ipynb", "elsewhere/t.py").exit_code == 0
    assert files("elsewhere") == {"t.py", "accelerate_config.yaml", "t.torchrun.sh"}
    assert "num_processes: 8" in read("elsewhere/accelerate_config.yaml")
    assert "device_map" not in read("elsewhere/t.py")


def test_the_command_line_is_stronger(command: Command, tmp_path: Path) -> None:
    configure(tmp_path, "gpus = 8\nbatch = 3\n")
    write("a.ipynb")
    command("a.ipynb", "t.py", "--gpus", "4")
    config = read("accelerate_config.yaml")
    assert "num_processes: 4" in config
    assert "largest=3)" in read("t.py")


def test_an_output_folder_makes_arguments_short(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    configure(tmp_path, "output-dir = 'scripts'\nexclude = ['drafts/']\n")
    write(tmp_path / "nb/x/a.ipynb")
    write(tmp_path / "nb/drafts/b.ipynb")
    assert command().exit_code == 0
    assert files(tmp_path / "scripts") == {"nb/x/a.py", "nb/x/accelerate_config.yaml"}
    assert command("nb", "--check").exit_code == 0
    monkeypatch.chdir(tmp_path / "nb/x")
    assert command("a.ipynb", "--check").exit_code == 0
    assert files(tmp_path / "nb/x") == {"a.ipynb"}


def test_exclude_counts_for_named_files(command: Command, tmp_path: Path) -> None:
    configure(tmp_path, "output-dir = 'out'\nexclude = ['a.ipynb']\n")
    for name in "ab":
        write(f"{name}.ipynb")
    assert command("a.ipynb", "b.ipynb").exit_code == 0
    assert files("out") == {"b.py", "accelerate_config.yaml"}


def test_overrides_for_some_notebooks(command: Command, tmp_path: Path) -> None:
    configure(
        tmp_path,
        """\
output-dir = "out"
[[tool.nb2ddp.overrides]]
files = ["big/"]
gpus = 8
machines = 2
launcher = "slurm"
slurm = ["--time=2:00:00"]
[[tool.nb2ddp.overrides]]
files = ["big/strict.ipynb"]
fail-on-warnings = true
""",
    )
    write("a.ipynb")
    write("big/b.ipynb")
    assert command(".").exit_code == 0
    assert "num_processes: 2" in read("out/accelerate_config.yaml")
    assert "num_processes: 16" in read("out/big/accelerate_config.yaml")
    batch = read("out/big/b.sbatch")
    assert "#SBATCH --time=2:00:00" in batch
    assert "#SBATCH --nodes=2" in batch
    write("big/strict.ipynb", *CELLS, "x = 1  # nb2ddp: ignore[DDP101]")
    assert command(".").exit_code == 1


@pytest.mark.parametrize(("text", "message"), rows(__file__))
def test_what_is_wrong_is_refused_before_anything_is_written(
    command: Command, tmp_path: Path, text: str, message: list[str]
) -> None:
    configure(tmp_path, text)
    write("a.ipynb", *CELLS)
    result = command("a.ipynb", "out/t.py")
    assert (result.exit_code, result.stdout) == (2, "")
    assert message[0] in result.stderr
    assert not Path("out").exists()


def test_tool_nb2ddp_must_be_a_table(command: Command) -> None:
    Path("pyproject.toml").write_text("[tool]\nnb2ddp = 1\n")
    write("a.ipynb")
    assert "tool.nb2ddp must be a table" in command("a.ipynb", "t.py").stderr


def test_the_documentation_names_every_key() -> None:
    page = (Path(__file__).parents[2] / "docs" / "use.md").read_text(encoding="utf-8")
    assert [key for key in KEYS if f"`{key}`" not in page] == []
