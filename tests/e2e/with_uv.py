"""Run nb2ddp as a person does on a machine on which only uv is installed."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from nb2ddp.rehearsal import uv

if TYPE_CHECKING:
    from pathlib import Path


def with_uv(*words: str, folder: Path, seconds: float, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run `uvx` with these words in a folder, and require code 0; skip the test without uv or a package index.

    Args:
        words: the arguments of `uvx`.
        folder: the working folder.
        seconds: the time limit.
        variables: more environment variables.
    """
    program = uv.found()
    if program is None:
        pytest.skip("uv is not there")
    environ = {name: value for name, value in uv.settings().items() if name not in ("VIRTUAL_ENV", "PYTHONPATH")}
    done = subprocess.run(
        [program, "tool", "run", "--python", sys.executable, *words],
        cwd=folder,
        env={**environ, **variables, "PATH": os.defpath},
        capture_output=True,
        text=True,
        timeout=seconds,
        check=False,
    )
    if "error sending request" in done.stderr or "Failed to fetch" in done.stderr:
        pytest.skip("no package index answers")
    assert done.returncode == 0, done.stdout + done.stderr
    return done
