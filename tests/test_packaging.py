"""The package from each form it is handed out in: the command works from another folder, templates included."""

from __future__ import annotations

import subprocess
import sys
import tarfile
import venv
import zipfile
from pathlib import Path

import pytest

from tests.checkout import copy
from tests.notebooks import write

pytestmark = pytest.mark.network


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return copy(tmp_path_factory.mktemp("source") / "nb2ddp")


@pytest.fixture(scope="module")
def built(source: Path) -> Path:
    """The folder with the sdist, and the wheel that is built from it."""
    subprocess.run([sys.executable, "-m", "build", str(source)], check=True, capture_output=True)
    return source / "dist"


def test_what_the_packages_hold(built: Path) -> None:
    (wheel,) = built.glob("*.whl")
    (sdist,) = built.glob("*.tar.gz")
    in_wheel = set(zipfile.ZipFile(wheel).namelist())
    templates = {path.name for path in (Path(__file__).parent.parent / "templates").iterdir()}
    assert {f"nb2ddp/templates/{name}" for name in templates} <= in_wheel
    assert {
        "nb2ddp/py.typed",
        "nb2ddp/__main__.py",
        "nb2ddp/rules/device_map.py",
        "nb2ddp/runtime/batch.py",
    } <= in_wheel
    assert not [name for name in in_wheel if not name.startswith(("nb2ddp/", "nb2ddp-"))]
    with tarfile.open(sdist) as archive:
        names = {name.split("/", 1)[1] for name in archive.getnames() if "/" in name}
    assert {"templates/setup.py.j2", "tests/test_packaging.py", "pyproject.toml", "README.md", "LICENSE"} <= names


@pytest.mark.parametrize("form", ["wheel", "sdist", "editable"])
def test_installed_and_run_from_another_folder(form: str, source: Path, built: Path, tmp_path: Path) -> None:
    (wheel,) = built.glob("*.whl")
    (sdist,) = built.glob("*.tar.gz")
    home = tmp_path / "venv"
    venv.create(home, with_pip=True)
    scripts = home / ("Scripts" if sys.platform == "win32" else "bin")
    python = scripts / "python"
    what = {"wheel": [str(wheel)], "sdist": [str(sdist)], "editable": ["--editable", str(source)]}[form]
    installed = subprocess.run(
        [python, "-m", "pip", "install", "--quiet", *what], capture_output=True, text=True, check=False
    )
    assert installed.returncode == 0, installed.stderr
    elsewhere = tmp_path / "elsewhere"
    write(elsewhere / "a.ipynb")
    run = {"cwd": elsewhere, "capture_output": True, "text": True, "check": True, "env": {"PATH": "/usr/bin:/bin"}}
    version = subprocess.run([scripts / "nb2ddp", "--version"], **run).stdout  # type: ignore[call-overload]
    assert version == "nb2ddp 0.1.0\n"
    subprocess.run([scripts / "nb2ddp", "a.ipynb", "out/train.py", "--no-cache"], **run)  # type: ignore[call-overload]
    assert "local_rank" in (elsewhere / "out/train.py").read_text()
    explained = subprocess.run([scripts / "nb2ddp", "--explain", "DDP101"], **run).stdout  # type: ignore[call-overload]
    assert explained.startswith("DDP101 ")
    command = [scripts / "jupyter-nbconvert", "--to", "ddp", "a.ipynb", "--output-dir", "two"]
    subprocess.run(command, **run)  # type: ignore[call-overload]
    assert (elsewhere / "two/a.py").exists()
    assert (elsewhere / "two/accelerate_config.yaml").exists()
