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
    """Starts each process as a copy of one that has imported what is slow to import.

    The copies of one parent share the seed of Python's hashes, and so the order of sets.

    Args:
        environment: of the parent; each copy has its own.
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

    def start(self, *command: str, environment: Mapping[str, str], folder: Path, said: Path) -> Process:
        """Start one, the first of a session of its own.

        Args:
            command: "play", "build" or "agent", and what these are to be told.
            environment: of the process.
            folder: it works in.
            said: a path without ending: what it prints goes to `.out` and `.err`.

        Raises:
            OSError: it cannot be started.
        """
        request = {
            "program": command[0],
            "arguments": command[1:],
            "environment": dict(environment),
            "folder": str(folder),
            "said": str(said),
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
        return Process(self._program, int(pid), Path(f"{said}.code"))

    def close(self) -> None:
        """Start no more."""
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
        """Its exit code, negative for a signal; None while it runs."""
        has_ended = self.program.poll() is not None  # asked first: the code may be written before the end
        code = self.file.read_text() if self.file.exists() else ""
        return int(code) if code else -9 if has_ended else None

    def wait(self) -> int:
        """The exit code, once it has ended."""
        while (code := self.poll()) is None:
            time.sleep(0.01)
        return code
