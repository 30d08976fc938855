"""`nb2ddp run`: what it installs and starts. uv is real; the package index is a folder of small packages."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import zipfile
from collections.abc import Sequence
from pathlib import Path

import pytest

from nb2ddp.cli import run as module
from nb2ddp.rehearsal import uv
from tests.command import Command
from tests.notebooks import CELLS, write

ROOT = Path(__file__).resolve().parents[2]
#: Ends like a launcher whose job failed.
TORCHRUN = """
import os, sys

def main():
    words = [os.path.basename(word) for word in sys.argv[1:]]
    print("torchrun", *words, "in", os.path.basename(os.environ["VIRTUAL_ENV"])[:4], flush=True)
    sys.exit(7)
"""


def package(folder: Path, name: str, version: str, needs: Sequence[str] = (), code: str = "") -> None:
    """Write a wheel with one module and, if there is code, the program torchrun."""
    about = f"{name}-{version}.dist-info"
    files = {
        f"{name}.py": code,
        f"{about}/METADATA": "\n".join(
            [f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}", *(f"Requires-Dist: {each}" for each in needs)]
        ),
        f"{about}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{about}/entry_points.txt": f"[console_scripts]\ntorchrun = {name}:main\n" if code else "",
    }
    files[f"{about}/RECORD"] = "".join(f"{path},,\n" for path in (*files, f"{about}/RECORD"))
    with zipfile.ZipFile(folder / f"{name}-{version}-py3-none-any.whl", "w") as wheel:
        for path, text in files.items():
            wheel.writestr(path, text)


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """The environment of a machine without a GPU, on which only uv is installed."""
    if (program := uv.found()) is None:
        pytest.skip("uv is not there")
    packages = tmp_path / "packages"
    packages.mkdir()
    package(packages, "unsloth", "9999.1", ["torch", "xformers", "unsloth_zoo"])
    package(packages, "unsloth_zoo", "9999.1")
    package(packages, "torch", "2.13.0", code=TORCHRUN)
    own = {"UV_OFFLINE": "1", "UV_FIND_LINKS": str(packages), "UV_CACHE_DIR": str(tmp_path / "uv"), "UV": program}
    own |= {"NB2DDP_CACHE_DIR": str(tmp_path / "cache"), "PYTHONPATH": str(ROOT)}
    nowhere = {"HTTPS_PROXY": "http://127.0.0.1:9", "UV_DEFAULT_INDEX": "https://index.invalid"}
    return {"PATH": os.defpath, **nowhere, **own}


def ran(folder: Path, environment: dict[str, str], *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "nb2ddp", "run", *words]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=300)


@pytest.mark.skipif(os.name != "posix", reason="it becomes its launcher, as on POSIX")
def test_it_converts_installs_and_starts(environment: dict[str, str], tmp_path: Path) -> None:
    write(tmp_path / "nb/a.ipynb")
    first = ran(tmp_path, environment, "nb/a.ipynb", "jobs/train.py")
    assert (first.returncode, first.stdout) == (7, "torchrun --nproc_per_node 2 start.py cpu train.py in run-\n"), (
        first.stderr
    )
    lines = first.stderr.splitlines()
    assert "This machine has no GPU: 2 processes train on the CPU." in lines
    assert re.fullmatch(r"\$ torchrun --nproc_per_node 2 \S+ cpu train.py", lines[-1])
    assert "Start it on" not in first.stderr
    (place,) = (tmp_path / "cache" / "environments").glob("run-*")
    assert not list(place.rglob("xformers*"))

    script = tmp_path / "jobs" / "train.py"
    script.write_text(script.read_text().replace("= per_device_batch,", "= 1,  # mine"))
    write(tmp_path / "nb/a.ipynb", *CELLS, "x = 1")
    (tmp_path / "packages").rename(tmp_path / "gone")
    again = ran(tmp_path, environment, "nb/a.ipynb", "jobs/train.py", "--gpus", "3")
    assert (again.returncode, again.stdout) == (7, "torchrun --nproc_per_node 3 start.py cpu train.py in run-\n"), (
        again.stderr
    )
    assert "# mine" in script.read_text()
    assert "x = 1" in script.read_text()


def test_what_cannot_be_installed_ends_it(environment: dict[str, str], tmp_path: Path) -> None:
    write(tmp_path / "a.ipynb", "!pip install unsloth no-such-package", *CELLS[1:])
    done = ran(tmp_path, environment, "a.ipynb")
    assert (done.returncode, done.stdout) == (2, "")
    assert "no-such-package" in done.stderr
    assert done.stderr.endswith("a.ipynb: not started, because `uv pip install` failed\n")


@pytest.fixture
def gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "has_gpu", lambda: True)
    monkeypatch.setattr(uv, "torch", lambda backend: ("--torch-backend", backend))


@pytest.mark.usefixtures("gpus")
def test_a_dry_run_prints_the_lines_and_writes_nothing(command: Command) -> None:
    installs = "!pip install unsloth\n!pip install --no-build-isolation flash-attn"
    write("nb/a b.ipynb", installs, *CELLS[1:])
    result = command("run", "nb/a b.ipynb", "--dry-run")
    assert result.exit_code == 0, result.output
    convert, make, activate, install, apart, change, start = result.stdout.splitlines()
    place = make.split()[-1]
    assert convert == "nb2ddp run 'nb/a b.ipynb'".replace(" run", "")
    assert make.startswith("uv venv ")
    assert activate == f". {place}/bin/activate"
    assert install == "uv pip install -r 'nb/a b.requirements.txt' --torch-backend auto"
    assert apart == "uv pip install --no-deps --no-build-isolation flash-attn"
    assert (change, start) == ("cd nb", "torchrun --nproc_per_node gpu 'a b.py'")
    assert [path.name for path in Path("nb").iterdir()] == ["a b.ipynb"]
    assert command("run", "nb/a b.ipynb", "--dry-run", "--gpus", "2").stdout.endswith(" --nproc_per_node 2 'a b.py'\n")


@pytest.mark.usefixtures("gpus")
@pytest.mark.parametrize(
    ("setting", "text"),
    [("split-model = true", "\npython a.py\n"), ("vllm-server = true", "start its vLLM server first")],
)
def test_settings(setting: str, text: str, command: Command) -> None:
    write("a.ipynb")
    Path("pyproject.toml").write_text(f"[tool.nb2ddp]\n{setting}\n")
    assert text in command("run", "a.ipynb", "--dry-run").output


@pytest.mark.parametrize("words", [["nowhere.ipynb"], ["nowhere.ipynb", "--dry-run"], ["."], ["a.ipynb", "b.ipynb"]])
def test_what_is_refused(words: list[str], command: Command) -> None:
    result = command("run", *words)
    assert result.exit_code == 2
    assert "Traceback" not in result.output


def test_without_uv_one_line_says_so(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(uv, "found", lambda: None)
    monkeypatch.setattr(uv, "torch", lambda backend="cpu": ())
    write("a.ipynb")
    result = command("run", "a.ipynb")
    assert result.exit_code == 2
    assert result.output.endswith("but it is not installed: pip install uv\n")
