"""Settings in pyproject.toml."""

from __future__ import annotations

from pathlib import Path

import pytest

from nb2ddp.project.config import KEYS
from tests.command import Command, files
from tests.notebooks import CELLS, write


def configure(folder: Path, text: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "pyproject.toml").write_text(f"[tool.nb2ddp]\n{text}", encoding="utf-8")


def test_settings_are_found_upwards_from_the_notebook(command: Command, tmp_path: Path) -> None:
    configure(tmp_path / "project", "num-processes = 8\nlauncher = 'torchrun'\nignore = ['DDP101']\n")
    (tmp_path / "project/nb/pyproject.toml").parent.mkdir()
    (tmp_path / "project/nb/pyproject.toml").write_text("[project]\nname = 'x'\n")
    write(tmp_path / "project/nb/deep/a.ipynb")
    assert command("project/nb/deep/a.ipynb", "elsewhere/t.py").exit_code == 0
    assert files(tmp_path / "elsewhere") == {"t.py", "accelerate_config.yaml", "t.torchrun.sh"}
    assert "num_processes: 8" in (tmp_path / "elsewhere/accelerate_config.yaml").read_text()
    assert "device_map" not in (tmp_path / "elsewhere/t.py").read_text()


def test_the_command_line_is_stronger(command: Command, tmp_path: Path) -> None:
    configure(tmp_path, "num-processes = 8\nper-device-batch-size = 3\nmixed-precision = 'bf16'\n")
    write(tmp_path / "a.ipynb")
    command("a.ipynb", "t.py", "--num-processes", "4")
    config = (tmp_path / "accelerate_config.yaml").read_text()
    assert "num_processes: 4" in config
    assert "mixed_precision: bf16" in config
    assert "largest=3)" in (tmp_path / "t.py").read_text()


def test_isolated(command: Command, tmp_path: Path) -> None:
    configure(tmp_path, "num-processes = 8\nwrong = 1\n")
    write(tmp_path / "a.ipynb")
    assert command("a.ipynb", "t.py", "--isolated").exit_code == 0
    assert "num_processes: 2" in (tmp_path / "accelerate_config.yaml").read_text()


def test_an_output_folder_makes_arguments_short(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    configure(tmp_path, "output-dir = 'scripts'\nroot = 'nb'\nexclude = ['drafts/']\n")
    write(tmp_path / "nb/x/a.ipynb")
    write(tmp_path / "nb/drafts/b.ipynb")
    assert command("nb").exit_code == 0
    assert files(tmp_path / "scripts") == {"x/a.py", "x/accelerate_config.yaml"}
    monkeypatch.chdir(tmp_path / "nb/x")
    assert command("a.ipynb", "--check").exit_code == 0
    assert files(tmp_path / "nb/x") == {"a.ipynb"}


def test_without_a_root_the_projects_tree_is_mirrored(command: Command, tmp_path: Path) -> None:
    configure(tmp_path, "output-dir = 'scripts'\n")
    write(tmp_path / "nb/a.ipynb")
    assert command("nb/a.ipynb").exit_code == 0
    assert command("nb", "--check").exit_code == 0
    assert files(tmp_path / "scripts") == {"nb/a.py", "nb/accelerate_config.yaml"}
    assert command("nb", "-o", "other").exit_code == 0
    assert files(tmp_path / "other") == {"a.py", "accelerate_config.yaml"}


def test_exclude_counts_for_named_files_and_adds_to_the_command_line(command: Command, tmp_path: Path) -> None:
    configure(tmp_path, "output-dir = 'out'\nexclude = ['a.ipynb']\n")
    for name in "abc":
        write(tmp_path / f"{name}.ipynb")
    assert command("a.ipynb", "b.ipynb", "c.ipynb", "--exclude", "b.ipynb").exit_code == 0
    assert files(tmp_path / "out") == {"c.py", "accelerate_config.yaml"}


def test_overrides_for_some_notebooks(command: Command, tmp_path: Path) -> None:
    configure(
        tmp_path,
        """\
output-dir = "out"
fail-on = "error"
[[tool.nb2ddp.overrides]]
files = ["big/"]
num-processes = 16
num-machines = 2
launcher = "slurm"
slurm = { time = "2:00:00", cpus-per-gpu = 8, environment = { A = "b c" }, modules = ["cuda"] }
[[tool.nb2ddp.overrides]]
files = ["big/strict.ipynb"]
fail-on = "note"
""",
    )
    write(tmp_path / "a.ipynb")
    write(tmp_path / "big/b.ipynb")
    assert command(".").exit_code == 0
    assert "num_processes: 2" in (tmp_path / "out/accelerate_config.yaml").read_text()
    assert "num_processes: 16" in (tmp_path / "out/big/accelerate_config.yaml").read_text()
    batch = (tmp_path / "out/big/b.sbatch").read_text()
    assert "#SBATCH --time=2:00:00" in batch
    assert "#SBATCH --nodes=2" in batch
    write(tmp_path / "big/strict.ipynb")
    assert command(".").exit_code == 1


def test_two_settings_for_one_launch_file_are_refused(command: Command, tmp_path: Path) -> None:
    configure(tmp_path, "output-dir = 'out'\n[[tool.nb2ddp.overrides]]\nfiles = ['b.ipynb']\nnum-processes = 4\n")
    write(tmp_path / "a.ipynb")
    write(tmp_path / "b.ipynb")
    result = command(".")
    assert result.exit_code == 2
    assert "a.ipynb and b.ipynb want different settings in one" in result.stderr
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("num-proceses = 4", "tool.nb2ddp: unknown key 'num-proceses'; did you mean 'num-processes'?"),
        ("num_processes = 4", "tool.nb2ddp: unknown key 'num_processes'; did you mean 'num-processes'?"),
        ("zzz = 4", "tool.nb2ddp: unknown key 'zzz'; there are num-processes, "),
        ("num-processes = '4'", "tool.nb2ddp: num-processes must be a whole number, not '4'"),
        ("num-processes = true", "tool.nb2ddp: num-processes must be a whole number, not True"),
        ("num-processes = 0", "tool.nb2ddp: processes must be at least 1, not 0."),
        ("num-processes = 3\nnum-machines = 2", "tool.nb2ddp: 3 processes cannot be spread evenly over 2 machines"),
        ("per-device-batch-size = 0", "tool.nb2ddp: per_device_batch_size must be at least 1, not 0."),
        ("mixed-precision = 'fp8'", "tool.nb2ddp: mixed_precision must be one of no, fp16, bf16, not 'fp8'."),
        (
            "launcher = 'mpi'",
            "launcher must be one of accelerate, notebook, slurm, torchrun, uv, not 'mpi'.",
        ),
        ("fail-on = 'all'", "tool.nb2ddp: fail-on must be error, warning or note, not 'all'"),
        ("ignore = 'DDP101'", "tool.nb2ddp: ignore must be a list of strings, not 'DDP101'"),
        ("ignore = ['DDP999']", "There is no rule 'DDP999'"),
        ("slurm = {tme = '1'}\nlauncher = 'slurm'", "tool.nb2ddp: slurm: unknown key 'tme'; did you mean 'time'?"),
        ("slurm = {time = 1}\nlauncher = 'slurm'", "tool.nb2ddp: slurm: time must be a string, not 1"),
        ("slurm = {time = '1; rm -rf /'}\nlauncher = 'slurm'", "tool.nb2ddp: time must be minutes"),
        ("[[tool.nb2ddp.overrides]]\nnum-processes = 1", "overrides, number 1: the key 'files' is missing"),
        ("[[tool.nb2ddp.overrides]]\nfiles = ['*']\nroot = 'x'", "overrides, number 1: unknown key 'root'"),
        ("= 1", "not TOML (Invalid"),
    ],
)
def test_what_is_wrong_is_refused_before_anything_is_written(
    command: Command, tmp_path: Path, text: str, message: str
) -> None:
    configure(tmp_path, text)
    write(tmp_path / "a.ipynb", *CELLS)
    result = command("a.ipynb", "out/t.py")
    assert (result.exit_code, result.stdout) == (2, "")
    assert message in result.stderr
    assert not (tmp_path / "out").exists()


def test_tool_nb2ddp_must_be_a_table(command: Command, tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text("[tool]\nnb2ddp = 1\n")
    write(tmp_path / "a.ipynb")
    assert "tool.nb2ddp must be a table" in command("a.ipynb", "t.py").stderr


def test_the_documentation_names_every_key() -> None:
    page = (Path(__file__).parents[2] / "docs" / "command.md").read_text(encoding="utf-8")
    assert [key for key in KEYS if f"`{key}`" not in page] == []
