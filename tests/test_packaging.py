"""The package from each form in which it is distributed: the command works from another folder, with templates."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
import venv
import zipfile
from pathlib import Path

import pytest

from tests.checkout import copy
from tests.notebooks import write

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return copy(tmp_path_factory.mktemp("source") / "nb2ddp")


@pytest.fixture(scope="module")
def built(source: Path) -> Path:
    """The folder with the sdist and the wheel that is built from it."""
    subprocess.run([sys.executable, "-m", "build", str(source)], check=True, capture_output=True)
    return source / "dist"


def test_what_the_packages_hold(built: Path) -> None:
    (wheel,) = built.glob("*.whl")
    (sdist,) = built.glob("*.tar.gz")
    in_wheel = set(zipfile.ZipFile(wheel).namelist())
    templates = {path.name for path in (Path(__file__).parent.parent / "templates").iterdir()}
    assert {f"nb2ddp/templates/{name}" for name in templates} <= in_wheel
    pages = {path.name for path in (Path(__file__).parent.parent / "docs" / "rules").iterdir()}
    assert {f"nb2ddp/pages/{name}" for name in pages} <= in_wheel
    assert {
        "nb2ddp/py.typed",
        "nb2ddp/__main__.py",
        "nb2ddp/rules/devices.py",
        "nb2ddp/runtime/batch.py",
    } <= in_wheel
    assert not [name for name in in_wheel if not name.startswith(("nb2ddp/", "nb2ddp-"))]
    with tarfile.open(sdist) as archive:
        names = {name.split("/", 1)[1] for name in archive.getnames() if "/" in name}
    assert {
        "templates/setup.py.j2",
        "docs/rules/DDP101.md",
        "tests/test_packaging.py",
        "pyproject.toml",
        "README.md",
        "LICENSE",
    } <= names


def test_installed_and_run_from_another_folder(built: Path, tmp_path: Path) -> None:
    """Install the wheel, which was built from the sdist. `python -m tests` makes an editable install of the project."""
    (wheel,) = built.glob("*.whl")
    home = tmp_path / "venv"
    venv.create(home, with_pip=True)
    scripts = home / ("Scripts" if sys.platform == "win32" else "bin")
    python = scripts / "python"
    installed = subprocess.run(
        [python, "-m", "pip", "install", "--quiet", str(wheel)], capture_output=True, text=True, check=False
    )
    assert installed.returncode == 0, installed.stderr
    elsewhere = tmp_path / "elsewhere"
    write(elsewhere / "a.ipynb")
    run = {"cwd": elsewhere, "capture_output": True, "text": True, "check": True, "env": {"PATH": "/usr/bin:/bin"}}
    version = subprocess.run([scripts / "nb2ddp", "--version"], **run).stdout  # type: ignore[call-overload]
    assert version == "nb2ddp 0.1.0\n"
    subprocess.run([scripts / "nb2ddp", "a.ipynb", "out/train.py"], **run)  # type: ignore[call-overload]
    assert "local_rank" in (elsewhere / "out/train.py").read_text()
    explained = subprocess.run([scripts / "nb2ddp", "explain", "DDP101"], **run).stdout  # type: ignore[call-overload]
    assert explained.startswith("DDP101 ")
    command = [scripts / "jupyter-nbconvert", "--to", "ddp", "a.ipynb", "--output-dir", "two"]
    subprocess.run(command, **run)  # type: ignore[call-overload]
    assert (elsewhere / "two/a.py").exists()
    assert (elsewhere / "two/accelerate_config.yaml").exists()


def pip(*arguments: str | Path, python: str = sys.executable, **environment: str) -> None:
    """Run pip."""
    command = [python, "-m", "pip", "--quiet", "--disable-pip-version-check", *arguments]
    done = subprocess.run(command, env={**os.environ, **environment}, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def converts(command: list[str | Path], folder: Path, user: int | None = None, **environment: str) -> None:
    """Check that a command converts a notebook and writes all files. Only `environment` can set HOME or UTF-8."""
    write(folder / "a.ipynb")
    folder.chmod(0o777)
    options = ["--launcher", "torchrun"]
    env = {"PATH": "/usr/bin:/bin", "LANG": "C", **environment}
    done = subprocess.run(
        [*command, "a.ipynb", *options], cwd=folder, env=env, user=user, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    written = {"a.py", "accelerate_config.yaml", "a.torchrun.sh", "a.requirements.txt"}
    assert written <= {path.name for path in folder.iterdir()}


@pytest.fixture(scope="module")
def target(built: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of packages, without the `share/` beside them, which containers and function layers leave out."""
    folder = tmp_path_factory.mktemp("target")
    pip("install", "--target", folder, next(built.glob("*.whl")))
    shutil.rmtree(folder / "share")
    return folder


def test_a_folder_of_packages(target: Path, tmp_path: Path) -> None:
    converts([sys.executable, "-m", "nb2ddp"], tmp_path, PYTHONPATH=str(target))
    again = subprocess.run([sys.executable, target / "bin" / "nb2ddp", "--version"], env={"PYTHONPATH": str(target)})
    assert again.returncode == 0


@pytest.mark.parametrize("version", ["3.10", "3.12", "3.13", "3.14"])
def test_every_python(version: str, built: Path, tmp_path: Path) -> None:
    """Test the other versions on the PATH. With pyenv, `PYENV_VERSION=3.10:3.12 pytest` puts several there."""
    python = shutil.which(f"python{version}")
    if python is None or subprocess.run([python, "--version"], capture_output=True).returncode:
        pytest.skip(f"there is no Python {version}")
    subprocess.run([python, "-m", "venv", tmp_path / "venv"], check=True)
    pip("install", next(built.glob("*.whl")), python=str(tmp_path / "venv" / "bin" / "python"))
    converts([tmp_path / "venv" / "bin" / "nb2ddp"], tmp_path / "work")
