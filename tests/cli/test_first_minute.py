"""What a new user types in the first minute works, or says what to type."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import nb2ddp
from nb2ddp.script.modules import hidden
from tests.command import Command, files
from tests.notebooks import CELLS, write


@pytest.mark.parametrize("more", [(), ("--check",), ("--diff",)])
def test_an_output_file_is_taken_twice(command: Command, tmp_path: Path, more: tuple[str, ...]) -> None:
    write(tmp_path / "a.ipynb")
    assert command("a.ipynb", "-o", "train.py").exit_code == 0
    again = command("a.ipynb", "-o", "train.py", *more)
    assert (again.exit_code, again.stdout) == (0, "")
    assert files(tmp_path) == {"a.ipynb", "train.py", "accelerate_config.yaml"}


@pytest.mark.parametrize(
    ("line", "name", "is_hidden"),
    [
        ("!pip install unsloth  # your own machine, or a rented one", "a", False),
        ("# to install a machine", "machine", False),
        ("!pip install machine  # or another", "machine", True),
        ("!pip install unsloth #a", "a", False),
    ],
)
def test_words_of_a_comment_are_no_packages(line: str, name: str, is_hidden: bool) -> None:
    assert bool(hidden(name, [line])) == is_hidden


def test_an_accelerate_config_of_ones_own_stays_and_the_remedy_works(command: Command, tmp_path: Path) -> None:
    write(tmp_path / "a.ipynb")
    (tmp_path / "accelerate_config.yaml").write_text("mine: true\n")
    refused = command("a.ipynb", "train.py")
    assert refused.exit_code == 2
    assert "move it, give the script another folder, or replace it with --keep nothing" in refused.stdout
    assert command("a.ipynb", "ddp/train.py").exit_code == 0
    assert (tmp_path / "accelerate_config.yaml").read_text() == "mine: true\n"
    assert command("a.ipynb", "train.py", "--keep", "nothing").exit_code == 0
    assert "num_processes: 2" in (tmp_path / "accelerate_config.yaml").read_text()


#: Writes a line to standard error once a handler of SIGINT stands.
_SAYS_WHEN = """
import os, signal
before = signal.signal
def install(number, handler):
    before(number, handler)
    os.write(2, b"installed\\n")
signal.signal = install
"""


@pytest.mark.skipif(os.name != "posix", reason="signals are those of POSIX")
@pytest.mark.parametrize("seconds", [0.0, 0.1, 0.3, 0.6])
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


def test_a_script_that_never_was_is_not_out_of_date(command: Command, tmp_path: Path) -> None:
    write(tmp_path / "a.ipynb")
    assert "DDP901 error: train.py does not exist: convert\n" in command("a.ipynb", "train.py", "--check").stdout


def test_hints_are_near(command: Command, tmp_path: Path) -> None:
    for name in ("list", "finetune"):
        write(tmp_path / f"{name}.ipynb")
    assert command("missing.ipynb").stdout == "missing.ipynb: DDP001 error: there is no such file\n"
    assert "did you mean finetune.ipynb?" in command("fine-tune.ipynb").stdout
    assert "did you mean estimate?" in command("estimat").stderr
    assert "did you mean rehearse?" in command("reharse", "x.py").stdout


def test_the_package_shows_what_it_offers() -> None:
    assert set(nb2ddp.__all__) <= set(dir(nb2ddp))
    assert all(hasattr(nb2ddp, name) for name in dir(nb2ddp))


def test_nothing_else_than_options_is_needed_for_another_conversion(command: Command, tmp_path: Path) -> None:
    write(tmp_path / "a.ipynb")
    command("a.ipynb", "--gpus", "4")
    write(tmp_path / "a.ipynb", *CELLS, "x = 1")
    assert command("a.ipynb").exit_code == 0
    assert "--num_processes 4 " in (tmp_path / "a.py").read_text()
