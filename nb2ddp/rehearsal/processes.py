"""Start the processes of a rehearsal, as copies of one that has imported the large libraries."""

from __future__ import annotations

import contextlib
import json
import subprocess
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

_START = Path(__file__).resolve().parent / "stage" / "start.py"


class Parent:
    """Starts each process as a copy of one that has imported the slow libraries.

    The copies of one parent share the seed of Python's hashes, and so the order of sets.

    Args:
        environment: the environment of the parent; each copy gets a separate one.
        python: the interpreter.
    """

    def __init__(self, environment: Mapping[str, str], python: str) -> None:
        self._program = subprocess.Popen(
            [python, str(_START), "parent"],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            start_new_session=True,
        )
        self._asking = threading.Lock()

    def start(self, *command: str, environment: Mapping[str, str], folder: Path, output: Path) -> Process:
        """Start a process, the first of a new session.

        Args:
            command: "play", "build" or "agent", and its arguments.
            environment: the environment of the process.
            folder: its working folder.
            output: a path without suffix; `.out` and `.err` are for standard output and standard error.

        Raises:
            OSError: the process cannot be started.
        """
        request = {
            "program": command[0],
            "arguments": command[1:],
            "environment": dict(environment),
            "folder": str(folder),
            "output": str(output),
        }
        assert self._program.stdin is not None
        assert self._program.stdout is not None
        with self._asking:
            with contextlib.suppress(BrokenPipeError, ValueError):  # it has ended, or was closed
                self._program.stdin.write(json.dumps(request) + "\n")
                self._program.stdin.flush()
            pid = self._program.stdout.readline()
        if not pid:
            raise OSError(f"the process that imports the libraries has ended with code {self._program.wait()}")
        return Process(self._program, int(pid), Path(f"{output}.code"))

    def close(self) -> None:
        """Stop the parent: it can start no more processes."""
        self._program.kill()
        self._program.wait()
        with contextlib.suppress(OSError):
            self._program.stdin.close()  # type: ignore[union-attr]


@dataclass
class Process:
    """A copy of a parent, which writes the copy's exit code into a file."""

    program: subprocess.Popen[str]
    pid: int
    file: Path

    def poll(self) -> int | None:
        """Return its exit code, negative for a signal; None while it runs."""
        has_ended = self.program.poll() is not None  # asked first: the code may be written before the end
        code = self.file.read_text() if self.file.exists() else ""
        return int(code) if code else -9 if has_ended else None

    def wait(self) -> int:
        """Wait for its end, and return its exit code."""
        while (code := self.poll()) is None:
            time.sleep(0.01)
        return code
