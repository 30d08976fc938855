"""Many notebooks: which are found, where their scripts go, and what survives faults, interruptions and kills."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from nb2ddp.codes import INTERNAL_MESSAGE
from tests.command import Command, files
from tests.notebooks import CELLS, markdown, write

posix_only = pytest.mark.skipif(os.name != "posix", reason="signals and modes are those of POSIX")
#: How often to kill a run; the full measurement does it 100 times.
KILLS = int(os.environ.get("NB2DDP_TEST_KILLS", "3"))


class TestInputs:
    def test_a_folder_is_mirrored(self, command: Command) -> None:
        for name in ("b", "a", "deep/er/c", "Llama3.1_(8B)-Alpaca"):
            write(f"nb/{name}.ipynb")
        result = command("nb", "-o", "out")
        assert result.exit_code == 0, result.output
        scripts = {"b.py", "a.py", "deep/er/c.py", "Llama3.1_(8B)-Alpaca.py"}
        configs = {"accelerate_config.yaml", "deep/er/accelerate_config.yaml"}
        assert files("out") == scripts | configs

    def test_single_files_go_into_the_folder_itself(self, command: Command) -> None:
        write("x/a.ipynb")
        write("y/b.ipynb")
        command("x/a.ipynb", "y/b.ipynb", "-o", "out")
        assert files("out") == {"a.py", "b.py", "accelerate_config.yaml"}

    @pytest.mark.parametrize("pattern", ["nb/**/*.ipynb", "n?/**/*.ipynb"])
    def test_patterns_need_no_shell(self, command: Command, pattern: str) -> None:
        write("nb/a.ipynb")
        write("nb/x/b.ipynb")
        Path("nb/notes.txt").write_text("")
        assert command(pattern, "-o", "out").exit_code == 0
        prefix = "" if pattern.startswith("nb") else "nb/"
        assert {f"{prefix}a.py", f"{prefix}x/b.py"} <= files("out")

    def test_a_name_that_looks_like_a_pattern(self, command: Command) -> None:
        write("a[1].ipynb")
        write("a1.ipynb")
        assert command("a[1].ipynb", "-o", "out").exit_code == 0
        assert files("out") == {"a[1].py", "accelerate_config.yaml"}

    def test_what_is_skipped(self, command: Command) -> None:
        kept = ["a", "sub/b", "sub/keep/d"]
        skipped = [
            ".ipynb_checkpoints/a-checkpoint",
            "sub/.ipynb_checkpoints/b-checkpoint",
            "node_modules/m/x",
            "env/lib/y",
            "ignored/z",
            "sub/draft_1",
            "sub/keep/other",
            "excluded/e",
        ]
        for name in kept + skipped:
            write(f"{name}.ipynb")
        Path("env/pyvenv.cfg").write_text("")
        Path(".gitignore").write_text("/ignored/\ndraft_*\nout\n")
        Path("sub/keep/.gitignore").write_text("*.ipynb\n!d.ipynb\n")
        Path("pyproject.toml").write_text('[tool.nb2ddp]\nexclude = ["excluded/"]\n')
        result = command(".", "-o", "out")
        assert result.exit_code == 0, result.output
        assert {name for name in files("out") if name.endswith(".py")} == {f"{name}.py" for name in kept}

    def test_gitignore_above_the_folder_counts_in_a_repository(self, command: Command) -> None:
        write("nb/a.ipynb")
        write("nb/draft.ipynb")
        Path(".gitignore").write_text("draft.ipynb\n")
        command("nb", "-o", "out1")
        assert "draft.py" in files("out1")
        Path(".git").mkdir()
        command("nb", "-o", "out2")
        assert "draft.py" not in files("out2")

    def test_a_named_file_is_converted_though_git_ignores_it(self, command: Command) -> None:
        write("a.ipynb")
        Path(".gitignore").write_text("*.ipynb\n")
        assert command("a.ipynb", "-o", "out").exit_code == 0

    def test_a_notebook_named_twice_is_converted_once(self, command: Command) -> None:
        write("nb/a.ipynb")
        result = command("nb", "nb/a.ipynb", "./nb", "-o", "out")
        assert result.stderr.splitlines()[-1].startswith("1 notebook: ") or "Start it" in result.stderr

    @posix_only
    def test_links_between_folders_are_not_followed(self, command: Command, tmp_path: Path) -> None:
        write("nb/a.ipynb")
        Path("nb/loop").symlink_to(tmp_path / "nb", target_is_directory=True)
        assert command("nb", "-o", "out").exit_code == 0
        assert files("out") == {"a.py", "accelerate_config.yaml"}


class TestFaults:
    def test_one_bad_notebook_never_stops_the_rest(self, command: Command) -> None:
        for number in range(6):
            write(f"nb/{number}.ipynb")
        write("nb/3.ipynb", "x = = 1")
        Path("nb/5.ipynb").write_text("{")
        result = command("nb", "-o", "out")
        assert result.exit_code == 2
        assert [line for line in result.stdout.splitlines() if "DDP" in line] == [
            "nb/3.ipynb:cell 1:1:5: DDP001 error: the cell is not Python: "
            "invalid syntax; correct it, or make it a Markdown cell",
            "nb/5.ipynb: DDP001 error: not a notebook: not valid JSON "
            "(Expecting property name enclosed in double quotes: line 1 column 2 (char 1))",
        ]
        assert "6 notebooks: 4 converted, 2 failed; " in result.stderr
        scripts = {name for name in files("out") if name.endswith(".py")}
        assert scripts == {f"{number}.py" for number in (0, 1, 2, 4)}

    @posix_only
    @pytest.mark.parametrize("first", ["", "import threading; threading.Timer(60, int).start()"], ids=["fork", "spawn"])
    def test_a_notebook_that_ends_its_process_is_an_error(self, first: str, tmp_path: Path) -> None:
        for number in range(5):
            write(tmp_path / "nb" / f"{number}.ipynb")
        (tmp_path / "sitecustomize.py").write_text(
            "import multiprocessing, os, pathlib\n"
            "read = pathlib.Path.read_bytes\n"
            "def read_bytes(path):\n"
            "    ends = path.name == '4.ipynb' and multiprocessing.parent_process() is not None\n"
            "    return os._exit(9) if ends else read(path)\n"
            "pathlib.Path.read_bytes = read_bytes\n"
        )
        code = (
            "import os, nb2ddp\n"
            "if __name__ == '__main__':\n"
            f"    {first}\n"
            "    results = list(nb2ddp.convert_paths(['nb'], 'out', processes=2))\n"
            "    print(*(each.failure.message if each.failure else '' for each in results), sep='\\n', flush=True)\n"
            "    os._exit(0)\n"
        )
        (tmp_path / "convert.py").write_text(code)
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path])}
        done = subprocess.run(
            [sys.executable, "convert.py"], cwd=tmp_path, env=environment, capture_output=True, text=True, check=True
        )
        messages = done.stdout.split("\n")[:-1]
        assert len(messages) == 5
        assert not (tmp_path / "out/4.py").exists()
        assert messages[4] == INTERNAL_MESSAGE.format("a converting process died")


class TestSharedFolder:
    def test_a_cache_folder_that_cannot_be_written_hurts_nothing(
        self, command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        Path("file").write_text("")
        monkeypatch.setenv("NB2DDP_CACHE_DIR", str(tmp_path / "file"))
        write("a.ipynb")
        assert command("a.ipynb", "t.py").exit_code == 0

    @pytest.mark.slow
    def test_many_processes_at_once(self, tmp_path: Path) -> None:
        for number in range(4):
            write(tmp_path / f"nb/{number}.ipynb")
        command = [sys.executable, "-m", "nb2ddp", "nb", "-o", "out", "-q"]
        runs = [subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE) for _ in range(4)]
        assert [each.wait() for each in runs] == [0] * 4
        assert not [path for path in (tmp_path / "out").iterdir() if path.name.startswith(".")]
        assert subprocess.run([*command, "--check"], cwd=tmp_path, check=False).returncode == 0


@posix_only
class TestInterruption:
    @pytest.fixture
    def folder(self, tmp_path: Path) -> Path:
        for number in range(5):
            write(tmp_path / f"nb/{number}.ipynb", *CELLS, markdown("text"), *["x = [1, 2]\n" * 50] * 2)
        return tmp_path

    def _start(self, folder: Path, *arguments: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "nb2ddp", "nb", "-o", "out", *arguments]
        return subprocess.Popen(
            command, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, start_new_session=True
        )

    def _complete(self, folder: Path, *arguments: str) -> dict[str, bytes]:
        assert self._start(folder, *arguments).wait() == 0
        return {name: (folder / "out" / name).read_bytes() for name in files(folder / "out")}

    def test_ctrl_c_leaves_whole_files(self, folder: Path) -> None:
        process = self._start(folder)
        time.sleep(2.5)
        os.killpg(process.pid, signal.SIGINT)
        _, errors = process.communicate(timeout=30)
        written = {name: (folder / "out" / name).read_bytes() for name in files(folder / "out")}
        assert process.returncode == 130 or len(written) == 6
        if process.returncode == 130:
            assert errors.splitlines()[-1] == b"Interrupted. Every file is as it was, or converted."
            assert b"Traceback" not in errors
        whole = self._complete(folder)
        assert written.items() <= whole.items()

    def test_a_kill_leaves_whole_files(self, folder: Path) -> None:
        """Each file is old or new, no new script is next to an old launch file, and no worker is left running."""
        before = self._complete(folder)
        after = self._complete(folder, "--gpus", "4", "--launcher", "torchrun", "--ignore", "DDP2")
        assert all(before[name] != after[name] for name in before)
        length = 4.0
        for attempt in range(KILLS):
            for name, content in before.items():
                (folder / "out" / name).write_bytes(content)
            for name in after.keys() - before.keys():
                (folder / "out" / name).unlink(missing_ok=True)
            process = self._start(folder, "--gpus", "4", "--launcher", "torchrun", "--ignore", "DDP2")
            time.sleep(random.Random(attempt).uniform(0.5, length))
            process.kill()
            process.communicate()
            deadline = time.monotonic() + 5
            while _group_lives(process.pid) and time.monotonic() < deadline:
                time.sleep(0.02)
            assert not _group_lives(process.pid), "a worker outlives the command"
            now = {name: (folder / "out" / name).read_bytes() for name in files(folder / "out")}
            assert now.keys() <= before.keys() | after.keys()
            for name, content in now.items():
                assert content in (before.get(name), after.get(name)), f"{name} is neither old nor new"
            new = [name for name in before if name.endswith(".py") and now[name] == after[name]]
            for name in new:
                for beside in ("accelerate_config.yaml", name.replace(".py", ".torchrun.sh")):
                    assert now[beside] == after[beside], f"{name} is new, {beside} is not"


def _group_lives(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True
