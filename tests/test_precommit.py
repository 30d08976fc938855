"""The hooks, with the real pre-commit in a real git repository."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.checkout import git, repository
from tests.notebooks import CELLS, write

pytest.importorskip("pre_commit")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(os.name != "posix", reason="pre-commit's environments differ elsewhere"),
]


@pytest.fixture(scope="module")
def hooks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """This project, as pre-commit fetches it."""
    return repository(tmp_path_factory.mktemp("hooks") / "nb2ddp")


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder for pre-commit's environments, shared by all tests here."""
    return tmp_path_factory.mktemp("home")


@pytest.fixture
def project(tmp_path: Path, hooks: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository that uses the hook, with settings for it."""
    monkeypatch.setenv("PRE_COMMIT_HOME", str(home))
    monkeypatch.delenv("PYTHONPATH", raising=False)
    folder = tmp_path / "project"
    folder.mkdir()
    git(folder, "init", "--quiet", "--initial-branch", "main")
    (folder / "pyproject.toml").write_text('[tool.nb2ddp]\noutput-dir = "scripts"\n')
    use(folder, hooks, "nb2ddp")
    subprocess.run([sys.executable, "-m", "pre_commit", "install"], cwd=folder, check=True, capture_output=True)
    return folder


def use(folder: Path, hooks: Path, hook: str) -> None:
    """Configure one hook."""
    revision = git(hooks, "rev-parse", "HEAD").stdout.strip()
    config = f"repos:\n- repo: {hooks}\n  rev: {revision}\n  hooks:\n  - id: {hook}\n"
    (folder / ".pre-commit-config.yaml").write_text(config)
    git(folder, "add", ".pre-commit-config.yaml", "pyproject.toml")


def commit(folder: Path) -> subprocess.CompletedProcess[str]:
    return git(folder, "commit", "--message", "change", check=False)


def test_convert_commit_edit_commit(project: Path) -> None:
    notebook = write(project / "notebooks/deep/a b.ipynb")
    git(project, "add", "notebooks/deep")
    assert commit(project).returncode == 0, "the script is new, and pre-commit checks only the files that it knows"
    assert (project / "scripts/notebooks/deep/a b.py").exists()
    git(project, "add", "scripts")
    assert commit(project).returncode == 0

    write(notebook, *CELLS, "x = 1")
    git(project, "add", "notebooks/deep")
    edited = commit(project)
    assert edited.returncode == 1
    assert "files were modified by this hook" in edited.stderr
    git(project, "add", "scripts")
    assert commit(project).returncode == 0


def test_the_checking_hook_writes_nothing(project: Path, hooks: Path) -> None:
    use(project, hooks, "nb2ddp-check")
    write(project / "notebooks/a.ipynb")
    git(project, "add", "notebooks")
    failed = commit(project)
    assert failed.returncode == 1
    assert "notebooks/a.ipynb: DDP901 error: " in failed.stderr
    assert not (project / "scripts").exists()
    environment = {**os.environ, "PYTHONPATH": str(hooks)}
    subprocess.run([sys.executable, "-m", "nb2ddp"], cwd=project, check=True, env=environment)
    git(project, "add", "scripts")
    assert commit(project).returncode == 0
