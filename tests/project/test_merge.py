"""Edits that a person makes in a script are kept: merges, refusals, and the history of earlier conversions."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from nb2ddp import __version__, convert_file
from nb2ddp.project.merge import merge
from nb2ddp.script import stamp
from tests.checkout import git
from tests.command import Command, files, read
from tests.examples import table
from tests.notebooks import CELLS, markdown, write

#: How many random pairs of an edit and a change are merged; the full measurement merges 1,000.
PAIRS = int(os.environ.get("NB2DDP_TEST_MERGES", "60"))
ALPACA = Path(__file__).parents[2] / "fixtures" / "notebooks" / "alpaca.ipynb"
EDIT = ("per_device_train_batch_size = per_device_batch", "per_device_train_batch_size = 1  # mine")


def edit(script: str | Path, old: str = EDIT[0], new: str = EDIT[1]) -> str:
    """Edit a script as a person does, and return its new text."""
    text = Path(script).read_text()
    assert old in text
    Path(script).write_text(text.replace(old, new))
    return text.replace(old, new)


class TestStamp:
    def test_says_how_and_from_what(self, command: Command) -> None:
        write("note books/a.ipynb")
        command("note books/a.ipynb", "scripts/a.py", "--gpus", "4", "--ignore", "DDP2,DDP101")
        line = stamp.read(read("scripts/a.py"))
        assert line is not None
        assert line.command == "nb2ddp '../note books/a.ipynb' a.py --gpus 4 --ignore DDP101,DDP2"
        assert (line.version, line.is_intact) == (__version__, True)
        config = stamp.read(read("scripts/accelerate_config.yaml"))
        assert config is not None
        assert config.command == "nb2ddp NOTEBOOK.ipynb --gpus 4"

    @pytest.mark.parametrize("arguments", [
        "--gpus 8 --resume --batch notebook",
        "--launcher slurm",
        "--launcher torchrun --gpus 4 --machines 2 --ignore DDP1,DDP2 --batch 3",
    ])  # fmt: skip
    def test_the_command_makes_the_same_files_again(
        self, command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: str
    ) -> None:
        write(tmp_path / "nb/a.ipynb")
        assert command("nb/a.ipynb", "out/a.py", *arguments.split()).exit_code == 0
        made = {name: (tmp_path / "out" / name).read_bytes() for name in files(tmp_path / "out")}
        line = stamp.read(made["a.py"].decode())
        assert line is not None
        for name in made:
            (tmp_path / "out" / name).unlink()
        monkeypatch.chdir(tmp_path / "out")
        words = subprocess.run(
            ["bash", "-c", f"printf '%s\\0' {line.command}"], capture_output=True, text=True, check=True
        ).stdout.split("\0")[1:-1]
        assert command(*words).exit_code == 0
        assert {name: (tmp_path / "out" / name).read_bytes() for name in files(tmp_path / "out")} == made

    def test_any_change_of_the_file_shows(self) -> None:
        text = stamp.sign("#!/bin/sh\n# first\n\nx\n", "nb2ddp a.ipynb")
        assert text.startswith("#!/bin/sh\n# first\n#   convert again: nb2ddp a.ipynb  # nb2ddp ")
        line = stamp.read(text)
        assert line is not None
        assert line.is_intact
        for changed in (text + "\n", text.replace("x", "y"), text.replace("a.ipynb", "b.ipynb")):
            line = stamp.read(changed)
            assert line is not None
            assert not line.is_intact
        assert stamp.read("x\n") is None

    def test_the_line_of_older_scripts_is_read(self) -> None:
        text = "#   convert again: nb2ddp a.ipynb t.py  (nb2ddp 0.1.0, sha256:9e1c3f9dc8bf1228)\nx = 1\n"
        assert stamp.read(text) == stamp.Stamp("nb2ddp a.ipynb t.py", "0.1.0", "9e1c3f9dc8bf1228", is_intact=True)


class TestCommand:
    def test_an_edit_survives_a_changed_notebook(self, command: Command) -> None:
        write("a.ipynb")
        command("a.ipynb")
        edit("a.py")
        write("a.ipynb", markdown("new"), *CELLS, "print('new')")
        result = command("a.ipynb")
        assert result.exit_code == 0
        assert "wrote a.py\nkept your edits in a.py\n" in result.stderr
        text = read("a.py")
        assert EDIT[1] in text
        assert "print('new')" in text
        assert "# %% Cell 5\nmodel.save_pretrained" in text
        assert command("a.ipynb", "--check").exit_code == 0
        assert read("a.py") == text
        write("a.ipynb", *CELLS)
        command("a.ipynb")
        assert EDIT[1] in read("a.py")
        assert "print('new')" not in read("a.py")

    def test_other_options_keep_edits_of_launch_files(self, command: Command) -> None:
        write("a.ipynb")
        command("a.ipynb")
        edit("accelerate_config.yaml", "debug: false", "debug: true")
        assert command("a.ipynb", "--gpus", "8").exit_code == 0
        lines = read("accelerate_config.yaml").splitlines()
        assert {"debug: true", "num_processes: 8"} <= set(lines)

    def test_a_conflict_is_shown_and_nothing_is_written(self, command: Command) -> None:
        write("a.ipynb")
        command("a.ipynb")
        edited = edit("a.py", '.save_pretrained("lora")', '.save_pretrained("mine")')
        write("a.ipynb", *CELLS[:-1], 'model.save_pretrained("theirs")')
        for mode in ((), ("--check",), ("--diff",)):
            result = command("a.ipynb", "--gpus", "8", *mode)
            assert result.exit_code == 2
            shown = result.stdout + result.stderr
            assert "a.ipynb: DDP905 error: a.py: the new lines conflict with your edits (line " in shown
            number = next(n for n, line in enumerate(edited.splitlines(), 1) if line == 'model.save_pretrained("mine")')
            assert (
                f" with your edits (line {number}, cell 4), so nothing is written. --keep mine takes your lines"
                in shown
            )
            assert '\nmodel.save_pretrained("mine")\n' in result.stdout
            assert '\nmodel.save_pretrained("theirs")\n' in result.stdout
            assert read("a.py") == edited
            assert "num_processes: 2" in read("accelerate_config.yaml")
        assert command("a.ipynb", "--keep", "nothing").exit_code == 0
        assert 'model.save_pretrained("theirs")' in read("a.py")

    @pytest.mark.parametrize("name", ["mine.py", "accelerate_config.yaml"])
    def test_a_file_of_somebody_else_is_refused(self, command: Command, name: str) -> None:
        write("a.ipynb")
        Path(name).write_text("distributed_type: DEEPSPEED\n")
        for mode in ((), ("--check",), ("--diff",)):
            result = command("a.ipynb", "mine.py", *mode)
            assert result.exit_code == 2
            assert f"a.ipynb: DDP906 error: {name} was not written by nb2ddp" in result.stdout + result.stderr
            assert files() == {"a.ipynb", name}
            assert read(name) == "distributed_type: DEEPSPEED\n"
        assert command("a.ipynb", "mine.py", "--keep", "nothing").exit_code == 0
        assert files() == {"a.ipynb", "mine.py", "accelerate_config.yaml"}

    def test_another_folder_is_a_way_out(self, command: Command) -> None:
        write("a.ipynb")
        Path("accelerate_config.yaml").write_text("distributed_type: DEEPSPEED\n")
        assert "give the script another folder, or replace it with --keep nothing" in command("a.ipynb").output
        assert command("a.ipynb", "out/a.py").exit_code == 0
        assert read("accelerate_config.yaml") == "distributed_type: DEEPSPEED\n"

    def test_an_empty_file_is_nobodys(self, command: Command) -> None:
        write("a.ipynb")
        Path("a.py").touch()
        assert command("a.ipynb").exit_code == 0

    def test_check_tells_edited_from_out_of_date(self, command: Command) -> None:
        write("a.ipynb")
        command("a.ipynb")
        edit("a.py")
        result = command("a.ipynb", "--check")
        assert (result.exit_code, result.stdout) == (
            0,
            "a.ipynb: DDP904 warning: a.py was edited by hand; converting again keeps the edits\n",
        )
        write("a.ipynb", *CELLS, "x = 1")
        result = command("a.ipynb", "--check")
        assert result.exit_code == 1
        assert [line.split()[1] for line in result.stdout.splitlines()] == ["DDP901", "DDP904"]

    def test_diff_is_what_would_change_on_disk(self, command: Command, tmp_path: Path) -> None:
        write("a.ipynb")
        new = command("a.ipynb", "--diff")
        assert new.exit_code == 0
        assert new.stdout.startswith("--- /dev/null\n+++ a.py\n@@ ")
        assert files() == {"a.ipynb"}
        command("a.ipynb")
        edit("a.py")
        assert command("a.ipynb", "--diff").stdout == ""
        write("a.ipynb", *CELLS, "x = 1")
        diff = command("a.ipynb", "--diff").stdout
        assert "+x = 1\n" in diff
        assert "mine" not in diff
        subprocess.run(["patch", "a.py"], input=diff, text=True, check=True, cwd=tmp_path, capture_output=True)
        patched = read("a.py")
        command("a.ipynb")
        assert read("a.py") == patched

    def test_a_script_of_another_notebook_is_somebody_elses(self, command: Command) -> None:
        for name in ("a", "b"):
            Path(f"{name}.py").write_text(f"# %%\nname = '{name}'\n# %%\n{CELLS[1]}\n# %%\n{CELLS[2]}\n")
            assert command(f"{name}.py").exit_code == 0
        assert files() == {"a.py", "b.py", "a_ddp.py", "b_ddp.py", "accelerate_config.yaml"}
        own = read("a_ddp.py")
        for text in (own, f"{own}# mine\n"):
            Path("a_ddp.py").write_text(text)
            for more in ((), ("--check",), ("--diff",)):
                result = command("b.py", "a_ddp.py", *more)
                assert result.exit_code == 2
                assert "DDP906 error: a_ddp.py was converted from another notebook, a.py (see its line" in result.output
            assert read("a_ddp.py") == text
        assert command("b.py", "a_ddp.py", "--keep", "nothing").exit_code == 0
        assert "name = 'b'" in read("a_ddp.py")

    def test_files_beside_a_script_of_another_notebook_are_somebody_elses(self, command: Command) -> None:
        write("a.ipynb")
        write("b.ipynb")
        command("a.ipynb", "t.py", "--launcher", "torchrun")
        Path("t.py").unlink()
        result = command("b.ipynb", "t.py", "--launcher", "torchrun")
        assert "DDP906 error: t.torchrun.sh was converted from another notebook, a.ipynb" in result.stdout
        assert not Path("t.py").exists()

    def test_a_notebook_may_be_moved_renamed_and_named_in_other_ways(self, command: Command, tmp_path: Path) -> None:
        write("a.ipynb")
        command("a.ipynb", "t.py")
        Path("link.ipynb").symlink_to("a.ipynb")
        assert command("link.ipynb", "t.py").exit_code == 0
        Path("link.ipynb").unlink()
        Path("nb").mkdir()
        Path("a.ipynb").rename(tmp_path / "nb/b.ipynb")
        assert command("nb/b.ipynb", "t.py").exit_code == 0
        assert "convert again: nb2ddp nb/b.ipynb t.py" in read("t.py")

    def test_a_script_of_a_notebook_is_not_for_standard_input(self, command: Command) -> None:
        write("a.ipynb")
        command("a.ipynb", "t.py")
        content = read("a.ipynb")
        assert command("-", "t.py", stdin=content).exit_code == 2
        assert command("-", "u.py", stdin=content).exit_code == 0
        assert command("-", "u.py", stdin=content).exit_code == 0
        assert command("a.ipynb", "u.py").exit_code == 0

    def test_line_ends_of_windows_are_no_edit(self, command: Command) -> None:
        write("a.ipynb")
        command("a.ipynb")
        Path("a.py").write_bytes(Path("a.py").read_bytes().replace(b"\n", b"\r\n"))
        assert command("a.ipynb", "--check").stdout == ""

    def test_a_second_notebook_that_sets_numbers_back_says_so(self, command: Command) -> None:
        write("a.ipynb")
        write("b.ipynb")
        command("a.ipynb", "--gpus", "8")
        result = command("b.ipynb")
        message = "accelerate_config.yaml: now num_processes is 2, was 8, for a.py too; the old options undo this"
        assert f"b.ipynb: DDP907 warning: {message}\n" in result.stdout
        assert command("b.ipynb", "--gpus", "8").exit_code == 0
        assert "--num_processes 8 a.py" in read("a.py")


class TestHistory:
    def test_git_knows_the_notebook_that_the_cache_forgot(self, command: Command, tmp_path: Path) -> None:
        git(tmp_path, "init", "--quiet")
        write("nb/a.ipynb")
        git(tmp_path, "add", ".")
        git(tmp_path, "commit", "--quiet", "--message", "first")
        command("nb/a.ipynb", "out/a.py", "--gpus", "4", "--ignore", "DDP101")
        edit("out/a.py")
        write("nb/a.ipynb", *CELLS, "x = 1")
        git(tmp_path, "commit", "--quiet", "--all", "--message", "second")
        shutil.rmtree(os.environ["NB2DDP_CACHE_DIR"])
        assert command("nb/a.ipynb", "out/a.py").exit_code == 0
        text = read("out/a.py")
        assert EDIT[1] in text
        assert "x = 1" in text
        assert "device_map" not in text  # `--ignore DDP101` is remembered

    def test_the_notebook_itself_is_enough_where_only_options_changed(self, command: Command) -> None:
        write("a.ipynb")
        command("a.ipynb")
        edit("a.py")
        shutil.rmtree(os.environ["NB2DDP_CACHE_DIR"])
        assert command("a.ipynb", "--ignore", "DDP101").exit_code == 0
        assert EDIT[1] in read("a.py")

    def test_what_nobody_knows_is_refused(self, command: Command) -> None:
        write("a.ipynb")
        command("a.ipynb")
        edited = edit("a.py")
        write("a.ipynb", *CELLS, "x = 1")
        shutil.rmtree(os.environ["NB2DDP_CACHE_DIR"])
        result = command("a.ipynb")
        assert result.exit_code == 2
        assert "DDP905 error: a.py was edited by hand, and the version that nb2ddp wrote is neither in" in result.stdout
        assert read("a.py") == edited


def test_from_python(tmp_path: Path) -> None:
    notebook = write(tmp_path / "a.ipynb")
    (tmp_path / "a.py").write_text("x\n")
    with pytest.raises(FileExistsError, match="was not written by nb2ddp"):
        convert_file(str(notebook), str(tmp_path / "a.py"))
    assert convert_file(notebook, tmp_path / "a.py", force=True).written
    edit(tmp_path / "a.py")
    write(notebook, *CELLS, "x = 1")
    assert convert_file(notebook, tmp_path / "a.py").merged == (tmp_path / "a.py",)


def script(cells: list[list[str]], setup: str = "import os") -> str:
    """Return a script of cells with the layout and signature of a script of nb2ddp."""
    blocks = ["#!/usr/bin/env python\n# a as a script\n\n# %% Setup\n" + setup + "\n"]
    for number, cell in enumerate(cells, 1):
        title = "[markdown]" if cell[0].startswith("# text") else f"Cell {number}"
        blocks.append(f"# %% {title}\n" + "\n".join(cell).strip("\n") + "\n")
    return stamp.sign("\n".join(blocks), "nb2ddp a.ipynb")


@table(__file__)
def test_what_is_no_conflict(code: str, answers: list[str]) -> None:
    """Merge an edit and a new version of a cell; a row has both, and their merge if they do not conflict."""
    base, mine, new, *both = (script([["# cell", cell, "end"]]) for cell in (code, *answers))
    merged = merge(base, stamp.copy(base, stamp.unsigned(mine)), new)
    assert [stamp.unsigned(merged.text)] * (not merged.conflicts) == [stamp.unsigned(each) for each in both]


def test_a_changed_cell_before_a_removed_one_keeps_its_edits() -> None:
    base, new = script([["a", "b"], ["x"], ["y"]]), script([["c", "b"], ["y"]])
    mine, both = (text.replace("\nb\n", "\nmine\n") for text in (base, new))
    assert stamp.unsigned(merge(base, mine, new).text) == stamp.unsigned(both)


def changed(lines: list[str], choose: random.Random) -> list[str]:
    """Return lines with up to three changes after the first line."""
    lines = list(lines)
    for _ in range(choose.randint(1, 3)):
        start = choose.randint(1, len(lines))
        lines[start : start + choose.randint(0, 2)] = [f"new {choose.random()}"] * choose.randint(0, 2)
    return lines


def test_an_edit_survives_any_change_of_another_cell() -> None:
    """The merge is the new script with the same edit, wherever the edit and the change are."""
    for number in range(PAIRS):
        choose = random.Random(number)
        cells = [[f"# cell {name}", *(f"line {name}" for _ in range(choose.randint(1, 5)))] for name in "abcdef"]
        new, mine = [list(cell) for cell in cells], choose.randrange(6)
        edited = [changed(cell, choose) if at == mine else cell for at, cell in enumerate(cells)]
        both = list(new)
        both[mine] = edited[mine]
        for at in sorted(choose.sample([at for at in range(6) if at != mine], 3), reverse=True):
            other = choose.choice(
                [[changed(cells[at], choose)], [], [cells[at], ["# text"]], [["# new", ")"], cells[at]]]
            )
            new[at : at + 1] = both[at : at + 1] = other
        setup = choose.choice(["import os", "import sys\nimport os"])
        base, converted = script(cells), script(new, setup)
        merged = merge(base, stamp.copy(base, stamp.unsigned(script(edited))), converted)
        assert not merged.conflicts
        assert stamp.unsigned(merged.text) == stamp.unsigned(script(both, setup))
        assert stamp.copy(converted, "") in merged.text


def test_merges_as_git_does(tmp_path: Path) -> None:
    """Compare the merge with git's: if neither finds a conflict, both return the same text.

    If only git finds a conflict, neighbouring lines changed, and the merge contains all lines that both sides wrote.
    In a few cases only the merge finds a conflict.
    """
    alone = 0
    for number in range(PAIRS):
        choose = random.Random(number)
        cell = [f"line {choose.randrange(40)}" for _ in range(choose.randint(4, 40))]
        texts = {"base": cell, "mine": changed(cell, choose), "new": changed(cell, choose)}
        made = {name: script([lines]) for name, lines in texts.items()}
        merged = merge(made["base"], made["mine"], made["new"])
        for name, text in made.items():
            (tmp_path / name).write_text(stamp.unsigned(text))
        by_git = git(tmp_path, "merge-file", "--stdout", "mine", "base", "new", check=False)
        if not merged.conflicts and not by_git.returncode:
            assert stamp.unsigned(merged.text) == by_git.stdout
        elif not merged.conflicts:
            base, mine, new, both = (Counter(text.split("\n")[3:]) for text in (*made.values(), merged.text))
            assert mine - base <= both
            assert new - base <= both
            assert not ((base - mine) | (base - new)) & (both - (mine & new))
        alone += bool(merged.conflicts) and not by_git.returncode
    assert alone <= PAIRS / 20


FORMED = """\
import os; x = {'a':1,
 'b': "it's",}
def f( a ):
    \'\'\' What it does. \'\'\'
    return (a) #the same
print(x)
y=f(x)
"""


def test_a_statement_that_differs_in_form_alone_is_the_notebooks(tmp_path: Path) -> None:
    formatted = subprocess.run(
        [sys.executable, "-m", "ruff", "format", "-"], input=FORMED, capture_output=True, text=True, check=True
    ).stdout
    assert formatted != FORMED
    new = FORMED.replace("'a':1", "'a':2").replace("y=f(x)", "y=f( x )\nz=1")
    assert merge(FORMED, formatted, new).text == new
    mine = formatted.replace("return a", "return -a")
    assert "return -a" in merge(FORMED, mine, new).text
    assert "'a':2" in merge(FORMED, mine, new).text
    (conflict,) = merge(FORMED, formatted.replace("f(x)", "f(0)"), new).conflicts
    assert formatted.split("\n")[conflict.line - 1] == "y = f(x)"
    merged = merge("split(1, 4)\na=1\nb=1\n", "split(4, 16, largest=4)\na=1\nb=1\n", "split(1, 4)\na=1\nb=2\n")
    assert merged.text == "split(4, 16, largest=4)\na=1\nb=2\n"
    for unread in ("x = (", "x = '"):
        assert merge("a\n", f"a\n{unread}\n", "b\na\n").text == f"b\na\n{unread}\n"


def test_ruff_format_makes_no_conflict(command: Command, tmp_path: Path) -> None:
    notebook = ALPACA.read_text()
    Path("a.ipynb").write_text(notebook)
    command("a.ipynb")
    subprocess.run([sys.executable, "-m", "ruff", "format", "-q", "a.py"], cwd=tmp_path, check=True)
    edit("a.py", "max_steps=20,", "max_steps=50,  # mine")
    changed = notebook.replace("lora_alpha = 16,", "lora_alpha = 64,")
    Path("a.ipynb").write_text(changed.replace("learning_rate = 2e-4,", "learning_rate = 1e-4,"))
    result = command("a.ipynb")
    assert result.exit_code == 0, result.output
    script = read("a.py")
    for line in ("    lora_alpha = 64,", "        learning_rate = 1e-4,", "        max_steps = 50,  # mine"):
        assert f"\n{line}" in script
