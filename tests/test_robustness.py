"""Notebooks and folders that are malicious or merely odd."""

from __future__ import annotations

import codecs
import errno
import json
import os
import sys
from pathlib import Path

import pytest

from nb2ddp import NotebookError, convert_source
from tests.command import Command, read
from tests.command import files as files_of
from tests.notebooks import CELLS, code, document, markdown, text, write

posix_only = pytest.mark.skipif(os.name != "posix", reason="links and modes are those of POSIX")


class TestInjection:
    @pytest.mark.parametrize("cell", [
        markdown("'''\"\"\"\n\rimport os; os.system('touch evil')\x0cimport evil\x85import evil\u2028import evil"),
        {"cell_type": "raw", "metadata": {}, "source": "a\rimport evil\r\nimport evil"},
    ])  # fmt: skip
    def test_text_stays_a_comment(self, cell: dict[str, object]) -> None:
        script = convert_source(text(*CELLS, cell)).files["train.py"]
        names = set(compile(script, "x", "exec").co_names)
        assert "evil" not in names
        assert "system" not in names

    def test_nothing_is_executed(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.chdir(tmp_path)
        evil = [
            "open('evil', 'w')",
            "!touch evil",
            "%%bash\ntouch evil",
            "%run evil",
            "x = __import__('os').mkdir('evil')",
        ]
        convert_source(text(*CELLS, *evil, "class A(print('evil')): pass"))
        assert files_of(tmp_path) == set()


@posix_only
class TestFiles:
    def test_a_script_that_is_a_link_is_not_followed(self, command: Command) -> None:
        write("a.ipynb")
        Path("precious").write_text("keep")
        Path("train.py").symlink_to("precious")
        result = command("a.ipynb", "train.py")
        assert result.exit_code == 2
        assert result.stdout == "a.ipynb: DDP903 error: train.py: is a symbolic link; name its target\n"
        assert read("precious") == "keep"

    def test_a_link_that_leads_out_of_the_output_folder_is_refused(self, command: Command, tmp_path: Path) -> None:
        write("nb/sub/a.ipynb")
        Path("elsewhere").mkdir()
        Path("out").mkdir()
        Path("out/sub").symlink_to(tmp_path / "elsewhere")
        result = command("nb", "-o", "out")
        assert result.exit_code == 2
        assert "a symbolic link leads out of the output folder out" in result.stderr
        assert list(Path("elsewhere").iterdir()) == []

    def test_the_mode_is_kept_and_a_new_file_follows_the_umask(self, command: Command) -> None:
        write("a.ipynb")
        before = os.umask(0o027)
        try:
            command("a.ipynb", "train.py")
            assert Path("train.py").stat().st_mode & 0o777 == 0o640
            Path("train.py").chmod(0o755)
            write("a.ipynb", *CELLS, "x = 1")
            command("a.ipynb", "train.py")
            assert Path("train.py").stat().st_mode & 0o777 == 0o755
        finally:
            os.umask(before)

    def test_a_read_only_script_is_left_alone(
        self, command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        write("a.ipynb")
        Path("train.py").write_text("keep")
        Path("train.py").chmod(0o444)
        if os.geteuid() == 0:  # root may write anything, so answer as for other users
            monkeypatch.setattr(os, "access", lambda path, mode: bool(Path(path).stat().st_mode & 0o222))
        result = command("a.ipynb", "train.py")
        assert (result.exit_code, result.stdout) == (2, "a.ipynb: DDP903 error: train.py: is read-only\n")
        assert read("train.py") == "keep"
        assert files_of(tmp_path) == {"a.ipynb", "train.py"}

    def test_an_output_folder_that_is_a_file(self, command: Command) -> None:
        write("a.ipynb")
        Path("file").write_text("")
        result = command("a.ipynb", "file/train.py")
        assert result.exit_code == 2
        assert result.stdout.startswith("a.ipynb: DDP903 error: file")

    def test_a_launch_file_that_is_a_folder(self, command: Command) -> None:
        write("a.ipynb")
        Path("accelerate_config.yaml").mkdir()
        result = command("a.ipynb", "train.py")
        assert (result.exit_code, result.stdout) == (
            2,
            "a.ipynb: DDP903 error: accelerate_config.yaml: is not a regular file\n",
        )
        assert not Path("train.py").exists()

    def test_a_full_disk_changes_nothing(
        self, command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        write("a.ipynb")
        command("a.ipynb", "train.py")
        before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}

        def fails(*_: object) -> None:
            raise OSError(errno.ENOSPC, "No space left on device")

        monkeypatch.setattr(Path, "chmod", fails)
        result = command("a.ipynb", "train.py", "--gpus", "4", "--ignore", "DDP2")
        assert (result.exit_code, result.stdout) == (2, "a.ipynb: DDP903 error: No space left on device\n")
        monkeypatch.undo()
        assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before

    @pytest.mark.skipif(sys.platform != "linux", reason="needs names that are no text")
    def test_a_name_that_is_no_text(self, command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        Path("nb").mkdir()
        Path(os.fsdecode(os.fsencode(tmp_path) + b"/nb/a\xff.ipynb")).write_text(text(*CELLS))
        monkeypatch.setenv("GITHUB_STEP_SUMMARY", "s.md")
        for form in ("text", "json", "github", "sarif"):
            result = command("nb", "-o", "out", "--format", form)
            assert result.exit_code == 2
            assert result.exception is None or isinstance(result.exception, SystemExit)
            assert "\\udcff" in result.stdout or "%5Cudcff" in result.stdout


class TestEncodings:
    def converted(self, command: Command, content: bytes) -> str:
        Path("a.ipynb").write_bytes(content)
        result = command("a.ipynb", "t.py")
        assert result.exit_code == 0, result.output
        return Path("t.py").read_bytes().decode()

    def test_a_byte_order_mark(self, command: Command) -> None:
        plain = self.converted(command, text().encode())
        assert self.converted(command, codecs.BOM_UTF8 + text().encode()) == plain

    @pytest.mark.parametrize("line_end", ["\r\n", "\r"])
    def test_line_ends(self, command: Command, line_end: str) -> None:
        plain = self.converted(command, text().encode())
        cells = [cell.replace("\n", line_end) for cell in CELLS]
        content = text(*cells).replace("\n", "\r\n").encode()
        assert self.converted(command, content) == plain
        assert "\r" not in plain

    @pytest.mark.parametrize("encoding", ["utf-16", "latin-1", "shift_jis"])
    def test_other_encodings_are_named(self, command: Command, encoding: str) -> None:
        content = json.dumps(document(*CELLS, markdown("é" if encoding == "latin-1" else "日")), ensure_ascii=False)
        Path("a.ipynb").write_bytes(content.encode(encoding))
        result = command("a.ipynb", "t.py")
        assert result.exit_code == 2
        assert result.stdout.startswith("a.ipynb: DDP001 error: not a notebook: not UTF-8 (")


class TestSizes:
    def test_duplicate_and_missing_ids(self) -> None:
        cells = [code(cell, id="same") for cell in CELLS]
        plain = convert_source(text(*CELLS)).files
        assert convert_source(text(*cells, nbformat_minor=5)).files == plain
        assert convert_source(text(*CELLS, nbformat_minor=5)).files == plain

    def test_deep_outputs_and_metadata(self) -> None:
        deep: object = 1
        for _ in range(400):
            deep = [deep]
        loads = code(CELLS[1], metadata={"x": deep})
        convert_source(text(loads, *CELLS[2:], metadata={"widgets": deep}))
        content = text(*CELLS).replace('"outputs": []', f'"outputs": [{"[" * 50_000}{"]" * 50_000}]', 1)
        with pytest.raises(NotebookError, match="not valid JSON"):
            convert_source(content)
