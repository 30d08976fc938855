"""Ctrl-C ends the command with one line, whenever it is pressed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

#: Writes a line to standard error as soon as a SIGINT handler is installed.
_SAYS_WHEN = """
import os, signal
before = signal.signal
def install(number, handler):
    before(number, handler)
    os.write(2, b"installed\\n")
signal.signal = install
"""


@pytest.mark.skipif(os.name != "posix", reason="signals are those of POSIX")
@pytest.mark.parametrize("seconds", [0.0, 0.3])
def test_ctrl_c_before_anything_is_converted(tmp_path: Path, seconds: float) -> None:
    """The command imports its modules, then reads a pipe to which nobody writes."""
    (tmp_path / "sitecustomize.py").write_text(_SAYS_WHEN)
    process = subprocess.Popen(
        [sys.executable, "-m", "nb2ddp", "-", "train.py", "--check"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path])},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    assert process.stderr
    assert process.stderr.readline() == b"installed\n"
    time.sleep(seconds)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=30)
    assert (process.returncode, errors) == (130, b"Interrupted. Every file is as it was, or converted.\n")
