"""Notebooks and folders that mean harm, or are merely odd."""

from __future__ import annotations

import codecs
import errno
import json
import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from nb2ddp import NotebookError, convert_source
from nb2ddp.project import files
from nb2ddp.results import Result
from tests.command import Command
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

    def test_metadata_reaches_nothing(self) -> None:
        kernel = {"name": "x\n!evil", "display_name": "evil", "language": "python"}
        metadata = {"kernelspec": kernel, "title": "evil", "authors": [{"name": "evil"}]}
        made = convert_source(text(*CELLS, metadata=metadata))
        assert not any("evil" in content for content in made.files.values())

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
    def test_a_script_that_is_a_link_is_not_followed(self, command: Command, tmp_path: Path) -> None:
        write(tmp_path / "a.ipynb")
        (tmp_path / "precious").write_text("keep")
        (tmp_path / "train.py").symlink_to("precious")
        result = command("a.ipynb", "train.py")
        assert result.exit_code == 2
        assert result.stdout == "a.ipynb: DDP903 error: train.py: is a symbolic link; name its target\n"
        assert (tmp_path / "precious").read_text() == "keep"

    def test_a_link_that_leads_out_of_the_output_folder_is_refused(self, command: Command, tmp_path: Path) -> None:
        write(tmp_path / "nb/sub/a.ipynb")
        (tmp_path / "elsewhere").mkdir()
        (tmp_path / "out").mkdir()
        (tmp_path / "out/sub").symlink_to(tmp_path / "elsewhere")
        result = command("nb", "-o", "out")
        assert result.exit_code == 2
        assert "a symbolic link leads out of the output folder out" in result.stderr
        assert list((tmp_path / "elsewhere").iterdir()) == []

    def test_dots_lead_nowhere(self, command: Command, tmp_path: Path) -> None:
        write(tmp_path / "nb/..ipynb")
        write(tmp_path / "nb/...ipynb")
        command("nb", "-o", "out/deep")
        assert {name for name in files_of(tmp_path) if not name.startswith(("nb/", "out/deep/"))} == set()

    def test_the_mode_is_kept_and_a_new_file_follows_the_umask(self, command: Command, tmp_path: Path) -> None:
        write(tmp_path / "a.ipynb")
        before = os.umask(0o027)
        try:
            command("a.ipynb", "train.py")
            assert (tmp_path / "train.py").stat().st_mode & 0o777 == 0o640
            (tmp_path / "train.py").chmod(0o755)
            write(tmp_path / "a.ipynb", *CELLS, "x = 1")
            command("a.ipynb", "train.py")
            assert (tmp_path / "train.py").stat().st_mode & 0o777 == 0o755
        finally:
            os.umask(before)

    def test_a_read_only_script_is_left_alone(
        self, command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        write(tmp_path / "a.ipynb")
        (tmp_path / "train.py").write_text("keep")
        (tmp_path / "train.py").chmod(0o444)
        if os.geteuid() == 0:  # root may write anything: answer as the system answers others
            monkeypatch.setattr(os, "access", lambda path, mode: bool(Path(path).stat().st_mode & 0o222))
        result = command("a.ipynb", "train.py")
        assert (result.exit_code, result.stdout) == (2, "a.ipynb: DDP903 error: train.py: is read-only\n")
        assert (tmp_path / "train.py").read_text() == "keep"
        assert files_of(tmp_path) == {"a.ipynb", "train.py"}

    def test_an_output_folder_that_is_a_file(self, command: Command, tmp_path: Path) -> None:
        write(tmp_path / "a.ipynb")
        (tmp_path / "file").write_text("")
        result = command("a.ipynb", "file/train.py")
        assert result.exit_code == 2
        assert result.stdout.startswith("a.ipynb: DDP903 error: file")

    def test_a_launch_file_that_is_a_folder(self, command: Command, tmp_path: Path) -> None:
        write(tmp_path / "a.ipynb")
        (tmp_path / "accelerate_config.yaml").mkdir()
        result = command("a.ipynb", "train.py")
        assert (result.exit_code, result.stdout) == (
            2,
            "a.ipynb: DDP903 error: accelerate_config.yaml: Is a directory\n",
        )
        assert not (tmp_path / "train.py").exists()

    def test_a_full_disk_changes_nothing(
        self, command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        write(tmp_path / "a.ipynb")
        command("a.ipynb", "train.py")
        before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}

        def fails(*_: object) -> None:
            raise OSError(errno.ENOSPC, "No space left on device")

        monkeypatch.setattr(Path, "chmod", fails)
        result = command("a.ipynb", "train.py", "--gpus", "4", "--ignore", "DDP2")
        assert (result.exit_code, result.stdout) == (2, "a.ipynb: DDP903 error: No space left on device\n")
        monkeypatch.undo()
        assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before

    @pytest.mark.skipif(not Path("/dev/shm").is_dir() or os.geteuid() != 0, reason="needs to mount a small disk")
    def test_a_disk_that_is_really_full(self, command: Command, tmp_path: Path) -> None:
        disk = tmp_path / "disk"
        disk.mkdir()
        mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=16k", "none", str(disk)], check=False)
        if mounted.returncode:
            pytest.skip("this machine mounts nothing")
        try:
            write(tmp_path / "a.ipynb", *CELLS, *[markdown("x" * 1000)] * 30)
            result = command("a.ipynb", "disk/train.py")
            assert result.exit_code == 2
            assert "DDP903" in result.stdout
            assert "No space left on device" in result.stdout
            assert list(disk.iterdir()) == []
        finally:
            subprocess.run(["umount", str(disk)], check=True)

    def test_several_files_change_together(self, tmp_path: Path) -> None:
        one, two = tmp_path / "one", tmp_path / "new/two"
        files.replace({one: b"1", two: b"2"})
        files.replace({one: b"3", two: b"4"})
        assert (one.read_bytes(), two.read_bytes()) == (b"3", b"4")
        assert {path.name for path in tmp_path.rglob("*")} == {"one", "new", "two"}

    def test_in_a_thread(self, tmp_path: Path) -> None:
        thread = threading.Thread(target=files.replace, args=({tmp_path / "a": b"1"},))
        thread.start()
        thread.join()
        assert (tmp_path / "a").read_bytes() == b"1"

    @pytest.mark.skipif(sys.platform != "linux", reason="needs names that are no text")
    def test_a_name_that_is_no_text(self, command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        (tmp_path / "nb").mkdir()
        Path(os.fsdecode(os.fsencode(tmp_path) + b"/nb/a\xff.ipynb")).write_text(text(*CELLS))
        monkeypatch.setenv("GITHUB_STEP_SUMMARY", "s.md")
        for form in ("text", "json", "github", "sarif"):
            result = command("nb", "-o", "out", "--format", form)
            assert result.exit_code == 2
            assert result.exception is None or isinstance(result.exception, SystemExit)
            assert "\\udcff" in result.stdout or "%5Cudcff" in result.stdout


class TestEncodings:
    def converted(self, command: Command, tmp_path: Path, content: bytes) -> str:
        (tmp_path / "a.ipynb").write_bytes(content)
        result = command("a.ipynb", "t.py")
        assert result.exit_code == 0, result.output
        return (tmp_path / "t.py").read_bytes().decode()

    def test_a_byte_order_mark(self, command: Command, tmp_path: Path) -> None:
        plain = self.converted(command, tmp_path, text().encode())
        assert self.converted(command, tmp_path, codecs.BOM_UTF8 + text().encode()) == plain

    @pytest.mark.parametrize("line_end", ["\r\n", "\r"])
    def test_line_ends(self, command: Command, tmp_path: Path, line_end: str) -> None:
        plain = self.converted(command, tmp_path, text().encode())
        cells = [cell.replace("\n", line_end) for cell in CELLS]
        content = text(*cells).replace("\n", "\r\n").encode()
        assert self.converted(command, tmp_path, content) == plain
        assert "\r" not in plain

    @pytest.mark.parametrize("encoding", ["utf-16", "latin-1", "shift_jis"])
    def test_other_encodings_are_named(self, command: Command, tmp_path: Path, encoding: str) -> None:
        content = json.dumps(document(*CELLS, markdown("é" if encoding == "latin-1" else "日")), ensure_ascii=False)
        (tmp_path / "a.ipynb").write_bytes(content.encode(encoding))
        result = command("a.ipynb", "t.py")
        assert result.exit_code == 2
        assert result.stdout.startswith("a.ipynb: DDP001 error: not a notebook: not UTF-8 (")

    def test_a_cell_that_declares_an_encoding(self) -> None:
        script = convert_source(text("# -*- coding: latin-1 -*-\ns = 'é'", *CELLS)).files["train.py"]
        namespace: dict[str, str] = {}
        compile(script.encode(), "x", "exec")
        exec(compile(script.split("# %% Cell 1\n")[1].split("\n\n")[0].encode(), "x", "exec"), namespace)
        assert "é" in script

    def test_findings_on_a_terminal_without_unicode(self, tmp_path: Path) -> None:
        write(tmp_path / "a.ipynb", *CELLS, "é = = '日'")
        environment = {**os.environ, "PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0", "LC_ALL": "C"}
        command = [sys.executable, "-m", "nb2ddp", "a.ipynb", "t.py"]
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, check=False)
        assert done.returncode == 2
        assert b"Traceback" not in done.stderr
        assert b"DDP001" in done.stdout


class TestSizes:
    def test_duplicate_and_missing_ids(self) -> None:
        cells = [code(cell, id="same") for cell in CELLS]
        plain = convert_source(text(*CELLS)).files
        assert convert_source(text(*cells, nbformat_minor=5)).files == plain
        assert convert_source(text(*CELLS, nbformat_minor=5)).files == plain

    def test_a_newer_minor_version(self) -> None:
        assert convert_source(text(*CELLS, nbformat_minor=9)).files == convert_source(text(*CELLS)).files

    def test_deep_outputs_and_metadata(self) -> None:
        deep: object = 1
        for _ in range(400):
            deep = [deep]
        loads = code(CELLS[1], metadata={"x": deep})
        convert_source(text(loads, *CELLS[2:], metadata={"widgets": deep}))
        content = text(*CELLS).replace('"outputs": []', f'"outputs": [{"[" * 50_000}{"]" * 50_000}]', 1)
        with pytest.raises(NotebookError, match="not valid JSON"):
            convert_source(content)

    def test_a_line_of_a_megabyte(self) -> None:
        made = convert_source(text(*CELLS, f"x = '{'y' * 1_000_000}'"))
        assert len(made.files["train.py"]) > 1_000_000

    def test_two_hundred_megabytes_of_output(self, tmp_path: Path) -> None:
        """Read in the memory of a few times the file, and with the time going into reading JSON."""
        shutil.rmtree(tmp_path / "out", ignore_errors=True)
        image = {"output_type": "display_data", "metadata": {}, "data": {"image/png": "A" * 50_000_000}}
        write(tmp_path / "a.ipynb", *CELLS[:-1], code(CELLS[-1], outputs=[image] * 4))
        assert (tmp_path / "a.ipynb").stat().st_size > 200_000_000
        source = (
            "import re\n"
            "from nb2ddp.cli.main import main\n"
            "try: main(['a.ipynb', 'out/t.py'], prog_name='nb2ddp')\n"
            # Not getrusage: its figure includes the process that started this one.
            "except SystemExit as e: print(e.code, re.search(r'VmHWM:\\s+(\\d+)', open('/proc/self/status').read())[1])"
        )
        command = [sys.executable, "-c", source]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
        code_, kilobytes = done.stdout.split()
        assert code_ == "0", done.stderr
        assert int(kilobytes) < 1_000_000
        assert (tmp_path / "out/t.py").read_text() == convert_source(text(), "a", "t.py", reference="../a.ipynb").files[
            "t.py"
        ]
        (tmp_path / "a.ipynb").unlink()


def test_a_result_crosses_a_process_boundary() -> None:
    import pickle

    from nb2ddp.results import Diagnostic, Location, Severity, Status

    failure = Diagnostic("DDP001", "name", Severity.ERROR, "m", Location(1, 2, 3), "x", False, 4)
    result = Result(Path("a"), Path("b"), Status.FAILED, (failure,))
    assert pickle.loads(pickle.dumps(result)) == result
