"""A copy of this project in a git repository of its own, as its users fetch it."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

ROOT = Path(__file__).parent.parent
#: The files that the package is built from, and the files that pre-commit and GitHub read.
PARTS = (
    ".pre-commit-hooks.yaml",
    "CHANGELOG.md",
    "LICENSE",
    "README.md",
    "action",
    "action.yml",
    "docs",
    "fixtures",
    "nb2ddp",
    "pyproject.toml",
    "templates",
    "tests",
)
_IGNORED = shutil.ignore_patterns("__pycache__", "*.egg-info", ".*_cache")


def git(folder: Path, *arguments: str, check: bool = True) -> subprocess.CompletedProcess[str]:
    """Run git with only the settings of the tests."""
    environment = {
        **os.environ,
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_CONFIG_SYSTEM": os.devnull,
        **{f"GIT_{who}_{what}": "test@localhost" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")},
    }
    command = ["git", *arguments]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=check)


def copy(folder: Path) -> Path:
    """Copy the working tree's parts into a folder."""
    folder.mkdir()
    for name in PARTS:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, folder / name, ignore=_IGNORED)
        elif source.exists():
            shutil.copy(source, folder)
    return folder


def repository(folder: Path) -> Path:
    """Copy the working tree's parts into a repository with one commit."""
    copy(folder)
    git(folder, "init", "--quiet", "--initial-branch", "main")
    git(folder, "add", ".")
    git(folder, "commit", "--quiet", "--message", "all")
    return folder
