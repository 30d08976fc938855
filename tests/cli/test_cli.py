"""The command: standard output, standard error and exit code of each mode."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from nb2ddp import __version__
from nb2ddp.cli.main import COMMANDS
from nb2ddp.rules.index import RULES
from tests.command import Command, files, read
from tests.examples import rows
from tests.notebooks import CELLS, code, markdown, write

#: Converts with a warning: a trainer without arguments.
WARNING = (CELLS[1], "from trl import SFTTrainer\ntrainer = SFTTrainer(model = model)\ntrainer.train()")


class TestOneNotebook:
    def test_writes_the_script_and_the_launch_file(self, command: Command) -> None:
        write("a.ipynb")
        result = command("a.ipynb", "out/train.py")
        assert (result.exit_code, result.stdout) == (0, "")
        wrote, summary, packages, fits, start, counted = result.stderr.splitlines()
        names = ("train.py", "accelerate_config.yaml", "train.requirements.txt")
        assert wrote == f"wrote {', '.join(f'out/{name}' for name in names)}"
        assert packages == "Install its packages with: pip install -r out/train.requirements.txt"
        assert re.fullmatch(r"Estimate: fits \d+ GB; 8 samples .* \(nb2ddp estimate a.ipynb\)\.", fits)
        assert re.fullmatch(r"1 notebook: 1 converted; 0 errors, 0 warnings, \d+ notes \(-v shows them\)", summary)
        assert start == "Start it on all GPUs with: cd out && torchrun --nproc_per_node gpu train.py"
        launch = "accelerate launch --config_file accelerate_config.yaml --num_processes 2 train.py"
        assert counted == f"Or on 2 GPUs with: cd out && {launch}"
        assert files() == {"a.ipynb", "out/train.py", "out/accelerate_config.yaml"}
        compile(read("out/train.py"), "train.py", "exec")

    @pytest.mark.parametrize(
        ("reads", "message"),
        [
            (["KEY"], "train.py needs KEY (cell 1)"),
            (["KEY", "open"], "train.py needs KEY (cell 1) and rows.csv beside it (cell 2)"),
            (["KEY", "open", "ID"], "train.py needs KEY (cell 1), rows.csv beside it (cell 2) and ID (cell 3)"),
        ],
    )
    def test_says_what_the_script_needs(self, command: Command, reads: list[str], message: str) -> None:
        read = {"open": 'rows = open("rows.csv").read()'}
        cells = [read.get(name, f'import os\nvalue = os.environ["{name}"]') for name in reads]
        write("a.ipynb", *cells, *CELLS)
        assert message in command("a.ipynb", "train.py").stderr.splitlines()

    def test_a_second_run_touches_nothing(self, command: Command) -> None:
        write("a.ipynb")
        command("a.ipynb", "train.py")
        before = Path("train.py").stat().st_mtime_ns, Path("train.py").stat().st_ino
        result = command("a.ipynb", "train.py")
        assert (Path("train.py").stat().st_mtime_ns, Path("train.py").stat().st_ino) == before
        assert result.stderr.startswith("1 notebook: 1 up to date; 0 errors, 0 warnings, ")
        assert result.exit_code == 0

    def test_quiet_prints_nothing(self, command: Command) -> None:
        write("a.ipynb", *WARNING)
        result = command("a.ipynb", "train.py", "--quiet")
        assert (result.exit_code, result.output) == (0, "")

    def test_warnings_are_printed_with_their_line(self, command: Command) -> None:
        write("a.ipynb", *WARNING)
        lines = command("a.ipynb", "train.py").stdout.splitlines()
        assert lines[0].startswith("a.ipynb:cell 2:2:11: DDP201 warning: the batch of this training is unknown")
        assert lines[1] == "    trainer = SFTTrainer(model = model)"
        assert len(lines) == 2

    def test_says_how_notes_are_seen(self, command: Command) -> None:
        write("a.ipynb")
        assert "notes (-v shows them)\n" in command("a.ipynb", "t.py").stderr
        for option in ("-v", "--format=json", "--format=sarif"):
            assert "(-v" not in command("a.ipynb", "t.py", option).stderr

    def test_verbose_prints_notes_too(self, command: Command) -> None:
        write("a.ipynb")
        lines = command("a.ipynb", "train.py", "--verbose").stdout.splitlines()
        assert (
            "a.ipynb:cell 2:2:20: DDP101 note: no device_map: processes would load onto each other's GPUs; in the"
            " script each loads onto its own [fixed]" in lines
        )

    def test_findings_are_coloured_on_a_terminal(self, command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
        write("a.ipynb", *WARNING)
        assert "\x1b[33m\x1b[1mDDP201\x1b[0m" in command("a.ipynb", "train.py", color=True).stdout
        assert "\x1b" not in command("a.ipynb", "train.py").stdout
        monkeypatch.setenv("NO_COLOR", "1")
        assert "\x1b" not in command("a.ipynb", "--diff", color=True).stdout

    @pytest.mark.parametrize(("setting", "code"), [("false", 0), ("true", 1)])
    def test_warnings_fail_a_run_if_pyproject_says_so(self, command: Command, setting: str, code: int) -> None:
        write("a.ipynb", *WARNING)
        Path("pyproject.toml").write_text(f"[tool.nb2ddp]\nfail-on-warnings = {setting}\n")
        assert command("a.ipynb", "train.py").exit_code == code
        assert command("a.ipynb", "train.py", "--check").exit_code == code

    def test_ignore_and_select_leave_rules_out(self, command: Command) -> None:
        write("a.ipynb")
        command("a.ipynb", "t.py", "--ignore", "DDP101,ddp4")
        text = read("t.py")
        assert "device_map" not in text
        assert "destroy_process_group" not in text
        assert "average_tokens_across_devices" in text
        Path("pyproject.toml").write_text('[tool.nb2ddp]\nselect = ["DDP3", "DDP101"]\n')
        command("a.ipynb", "u.py")
        text = read("u.py")
        assert "device_map" in text
        assert "average_tokens_across_devices" not in text


class TestStreams:
    def test_from_and_to(self, command: Command) -> None:
        write("a.ipynb", *WARNING)
        result = command("-", "-", stdin=read("a.ipynb"))
        assert result.exit_code == 0
        assert result.stdout.startswith("#!/usr/bin/env python\n# notebook as a script")
        assert result.stderr.startswith("<stdin>:cell 2:2:11: DDP201 warning: ")
        assert files() == {"a.ipynb"}
        assert command("-", stdin=read("a.ipynb")).stdout == result.stdout

    def test_to_standard_output_is_what_the_file_would_be(self, command: Command) -> None:
        write("a.ipynb", *CELLS, markdown("é → 日本"))
        assert command("a.ipynb", "a.py").exit_code == 0
        result = command("a.ipynb", "-")
        assert result.stdout_bytes == Path("a.py").read_bytes()

    def test_from_standard_input_to_a_file(self, command: Command) -> None:
        write("a.ipynb")
        assert command("-", "b.py", stdin=read("a.ipynb")).exit_code == 0
        assert files() == {"a.ipynb", "b.py", "accelerate_config.yaml"}
        assert command("-", "b.py", "--check", stdin=read("a.ipynb")).exit_code == 0

    def test_bad_input(self, command: Command) -> None:
        result = command("-", "-", stdin=b"\xff\xfe{}")
        assert (result.exit_code, result.stdout) == (2, "")
        assert "<stdin>: DDP001 error: not a notebook: not UTF-8 (invalid start byte at byte 0)" in result.stderr

    @pytest.mark.parametrize(
        "arguments", [("-", "--check"), ("-", "-", "--format", "json"), ("-", "a.ipynb", "b.py"), ("-", "b.txt")]
    )
    def test_what_makes_no_sense_is_refused(self, command: Command, arguments: tuple[str, ...]) -> None:
        result = command(*arguments, stdin="{}")
        assert (result.exit_code, result.stdout) == (2, "")
        assert "Error: " in result.stderr


class TestCheck:
    def test_says_what_is_stale_and_writes_nothing(self, command: Command) -> None:
        write("a.ipynb")
        result = command("a.ipynb", "train.py", "--check")
        assert result.exit_code == 1
        assert result.stdout == "a.ipynb: DDP901 error: train.py does not exist: convert\n"
        assert result.stderr.startswith("1 notebook: 1 out of date; 1 error, 0 warnings, ")
        assert files() == {"a.ipynb"}
        command("a.ipynb", "train.py")
        result = command("a.ipynb", "train.py", "--check")
        assert (result.exit_code, result.stdout) == (0, "")
        result = command("a.ipynb", "train.py", "--check", "--gpus", "4")
        assert result.exit_code == 1
        assert result.stdout == (
            "a.ipynb: DDP901 error: train.py and accelerate_config.yaml and train.requirements.txt are out of date:"
            " convert again\n"
        )

    def test_an_output_is_a_file_or_a_folder_the_second_time_too(self, command: Command) -> None:
        write("a.ipynb")
        Path("out").mkdir()
        for target, script in (("train.py", "train.py"), ("out", "out/a.py")):
            for mode in ((), (), ("--check",)):
                assert command("a.ipynb", "-o", target, *mode).exit_code == 0
            assert Path(script).is_file()


class TestAbout:
    def test_version(self, command: Command) -> None:
        result = command("--version")
        assert (result.exit_code, result.stdout, result.stderr) == (0, f"nb2ddp {__version__}\n", "")

    def test_help_fits_a_screen(self, command: Command) -> None:
        result = command("--help")
        assert result.exit_code == 0
        assert "nb2ddp finetune.ipynb train.py" in result.stdout
        assert result.stdout.count("\n") <= 45

    def test_help_lists_the_other_commands(self, command: Command) -> None:
        section = command("--help").stdout.split("\nCommands:\n")[1].split("\n\n")[0]
        for name in COMMANDS:
            assert f" nb2ddp {name} " in section
            assert command(name, "--help").exit_code == 0

    def test_list_rules(self, command: Command) -> None:
        result = command("explain")
        assert result.exit_code == 0
        codes = [line.split()[0] for line in result.stdout.splitlines()]
        assert codes == sorted(codes)
        assert len(set(codes)) == len(codes)
        assert {rule.code for rule in RULES} < set(codes)

    @pytest.mark.parametrize("name", ["DDP101", "ddp101", "model-not-on-local-gpu"])
    def test_explain(self, command: Command, name: str) -> None:
        result = command("explain", name)
        assert result.exit_code == 0
        assert result.stdout.startswith("DDP101 model-not-on-local-gpu\n")
        assert "\n+    device_map = local_rank,\n" in result.stdout
        assert "Left alone:" in result.stdout

    def test_explain_the_beginning_of_codes(self, command: Command) -> None:
        listed = command("explain", "DDP2").stdout.splitlines()
        assert [line[:6] for line in listed] == [rule.code for rule in RULES if rule.code.startswith("DDP2")]
        assert set(listed) < set(command("explain").stdout.splitlines())

    def test_explain_a_code_of_the_command(self, command: Command) -> None:
        assert command("explain", "DDP901").stdout.startswith("DDP901 script-out-of-date\n")
        assert command("explain", "901").stdout == command("explain", "ddp901").stdout

    @pytest.mark.parametrize(
        ("arguments", "unwanted"),
        [
            ("--help", ("nbconvert", "nbformat", "libcst", "IPython", "jinja2", "pathspec")),
            ("explain DDP101", ("nbconvert",)),
        ],
    )
    def test_imports_no_more_than_it_needs(self, arguments: str, unwanted: tuple[str, ...]) -> None:
        command = [sys.executable, "-X", "importtime", "-m", "nb2ddp", *arguments.split()]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        imported = {line.rsplit("|", 1)[1].strip() for line in done.stderr.splitlines() if "|" in line}
        assert "click" in imported
        assert not imported & set(unwanted)


class TestWrongUsage:
    """Exit code 2, a sentence on standard error, nothing on standard output, no file."""

    @pytest.fixture(autouse=True)
    def _notebooks(self, tmp_path: Path) -> None:
        write(tmp_path / "a.ipynb")
        write(tmp_path / "b.ipynb")
        write(tmp_path / "sub/a.ipynb")
        (tmp_path / "empty").mkdir()
        (tmp_path / "folder.py").mkdir()

    NONE = ("", ["Which notebook? For example: nb2ddp finetune.ipynb train.py"])

    @pytest.mark.parametrize(("arguments", "message"), [*rows(__file__), NONE])
    def test_is_refused_before_anything_is_written(self, command: Command, arguments: str, message: list[str]) -> None:
        before = files()
        result = command(*arguments.split())
        assert (result.exit_code, result.stdout) == (2, "")
        assert message[0] in result.stderr
        assert files() == before


def test_a_script_of_ours_is_no_notebook(command: Command) -> None:
    write("a.ipynb")
    command("a.ipynb", "a.py")
    for arguments in (["a.py", "b.py"], ["a.py"], ["a.py", "-o", "out"]):
        result = command(*arguments)
        assert result.exit_code == 2
        assert "a.py is a script that nb2ddp wrote, not a notebook" in result.stderr
        assert "nb2ddp a.ipynb a.py\n" in result.stderr
    assert not Path("b.py").exists()


class TestBadNotebook:
    """Exit code 2, the exact message on standard output, no file."""

    @pytest.mark.parametrize(
        ("cells", "message"),
        [
            (("x = 1", markdown("no"), "y = 2\nz = = 3"), "3:2:5: DDP001 error: the cell is not Python: "),
            (("x = 1", "y = '\0'"), "2:1:6: DDP001 error: the character '\\x00' cannot"),
            (("x = 1", "y = '\ud800'"), "2:1:6: DDP001 error: the character '\\ud800' c"),
            (("__ipython__(0)",), "1:1:1: DDP001 error: the name __ipython__ is nb2ddp's own"),
            (("x = 1",), "1:1:1: DDP002 error: no training was found"),
            ((*CELLS, "%time x = 1!y"), "5:1:6: DDP001 error: the cell is not Python: "),
            ((*CELLS, "if x:\n    \ty = 1\n  !ls"), "5:3:1: DDP001 error: the cell is not Python: unindent does not"),
            (("x = 1", "\\\n!ls\n!ls"), "2:1:1: DDP001 error: a line that is only a backs"),
            (("x = [1,", "2]"), "1:1:5: DDP001 error: the cell is not Python: "),
            (("if x:", "    y = 1"), "1:1:6: DDP001 error: the cell is not Python: "),
            (("y = 1", "x = 1 \\"), "2:1:8: DDP001 error: the cell is not Python: "),
        ],
    )
    def test_says_what_and_where(self, command: Command, cells: tuple[str, ...], message: str) -> None:
        write("bad.ipynb", *cells)
        result = command("bad.ipynb", "out/train.py")
        assert result.exit_code == 2
        assert result.stdout.startswith(f"bad.ipynb:cell {message}"), result.stdout
        assert result.stderr.startswith("1 notebook: 1 failed;")
        assert files() == {"bad.ipynb"}

    @pytest.mark.parametrize(
        ("cells", "places"),
        [
            (("x = = 1", *CELLS, "%time y = 1!z", "def f(:", '"""'), ["1:1:5", "6:1:6", "7:1:7", "8:1:1"]),
            (("from accelerate import notebook_launcher as n\nn(f)", "!torchrun x.py", *CELLS), ["1:2:1", "2:1:1"]),
            (("y = '\0'", *CELLS, "__ipython__(0)"), ["1:1:6", "6:1:1"]),
        ],
        ids=["not Python", "refused by a rule", "cannot stand in a script"],
    )
    def test_names_all_cells(self, command: Command, cells: tuple[str, ...], places: list[str]) -> None:
        write("bad.ipynb", *cells)
        result = command("bad.ipynb", "train.py")
        assert re.findall(r"^bad.ipynb:cell (\S+): DDP", result.stdout, re.MULTILINE) == places
        assert f"1 failed; {len(places)} errors" in result.stderr

    def test_not_a_file(self, command: Command) -> None:
        write("folder/finetune.ipynb")
        write("list.ipynb")
        for name, message in (
            ("missing.ipynb", "there is no such file"),
            ("folder/fine-tune.ipynb", "there is no such file; did you mean folder/finetune.ipynb?"),
            ("folder", "is a folder, not a notebook"),
        ):
            result = command(name, "train.py")
            assert (result.exit_code, result.stdout) == (2, f"{name}: DDP001 error: {message}\n")

    @pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="the system has no named pipes")
    def test_a_pipe_is_not_waited_for(self, command: Command, tmp_path: Path) -> None:
        os.mkfifo(tmp_path / "pipe.ipynb")
        result = command("pipe.ipynb", "train.py")
        assert (result.exit_code, result.stdout) == (2, "pipe.ipynb: DDP001 error: is not a regular file\n")

    def test_nothing_in_it_steers_the_terminal(self, command: Command) -> None:
        write("bad.ipynb", code("\x1b[2J\x1b]0;gone\x07 = = 1"))
        result = command("bad.ipynb", "train.py", color=False)
        assert "\x1b" not in result.output
        assert "\x07" not in result.output
        assert "\\x1b[2J" in result.stdout
