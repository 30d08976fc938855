"""The tests use the working tree, whatever else is installed or is in it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import nb2ddp

ROOT = Path(__file__).parent.parent


def test_the_package_of_the_working_tree_is_used_in_every_process() -> None:
    command = [sys.executable, "-c", "import nb2ddp; print(nb2ddp.__file__)"]
    started = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    assert Path(nb2ddp.__file__) == Path(started) == ROOT / "nb2ddp" / "__init__.py"


def test_tests_run_in_a_folder_of_their_own() -> None:
    assert not Path.cwd().is_relative_to(ROOT)
    assert not ROOT.is_relative_to(Path.cwd())
