"""Start the processes of a rehearsal: where that is sound, as copies of one that has imported the large libraries."""

from __future__ import annotations

import contextlib
import json
import queue
import subprocess
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

_START = Path(__file__).resolve().parent / "stage" / "start.py"


class Process(Protocol):
    """A process that has been started."""

    pid: int

    def poll(self) -> int | None:
        """Its exit code, negative for a signal; None while it runs."""

    def wait(self) -> int:
        """The exit code, once it has ended."""


class Starter(Protocol):
    """Starts processes."""

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

    def close(self) -> None:
        """Start no more."""


def starter(environment: Mapping[str, str], python: str) -> Starter:
    """The faster way to start processes of an interpreter that this system knows.

    Elsewhere than on Linux, libraries that have been imported may not live through a fork
    (https://docs.python.org/3/library/multiprocessing.html#contexts-and-start-methods).
    """
    return Parent(environment, python) if sys.platform == "linux" else Separate(python)


class Separate:
    """Starts each process as a program of its own.

    Args:
        python: the interpreter.
    """

    def __init__(self, python: str) -> None:
        self._python = python

    def start(self, *command: str, environment: Mapping[str, str], folder: Path, said: Path) -> Process:
        """See `Starter`."""
        with said.with_suffix(".out").open("wb") as stdout, said.with_suffix(".err").open("wb") as stderr:
            return subprocess.Popen(
                [self._python, str(_START), *command],
                cwd=folder,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=stdout,
                stderr=stderr,
                start_new_session=True,
            )

    def close(self) -> None:
        """See `Starter`."""


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
        self._started: queue.Queue[int | None] = queue.Queue()
        self._ended: dict[int, int] = {}
        self._news = threading.Condition()
        threading.Thread(target=self._listen, daemon=True).start()

    def start(self, *command: str, environment: Mapping[str, str], folder: Path, said: Path) -> Process:
        """See `Starter`."""
        request = {
            "program": command[0],
            "arguments": command[1:],
            "environment": dict(environment),
            "folder": str(folder),
            "out": str(said.with_suffix(".out")),
            "err": str(said.with_suffix(".err")),
        }
        assert self._program.stdin is not None
        with self._asking:
            with contextlib.suppress(BrokenPipeError, ValueError):  # it has ended, or was closed
                self._program.stdin.write(json.dumps(request) + "\n")
                self._program.stdin.flush()
            pid = self._started.get()
        if pid is None:
            self._started.put(None)
            raise OSError(f"the process that imports the libraries has ended with code {self._program.wait()}")
        return _Copy(self, pid)

    def close(self) -> None:
        """See `Starter`."""
        self._program.kill()
        self._program.wait()
        with contextlib.suppress(OSError):
            self._program.stdin.close()  # type: ignore[union-attr]

    def code(self, pid: int) -> int | None:
        """How a copy has ended."""
        return self._ended.get(pid) if self._program.poll() is None else self._ended.get(pid, -9)

    def until_ended(self, pid: int) -> int:
        """Wait for the end of a copy."""
        with self._news:
            self._news.wait_for(lambda: pid in self._ended or self._program.poll() is not None)
            return self._ended.get(pid, -9)

    def _listen(self) -> None:
        assert self._program.stdout is not None
        for line in self._program.stdout:
            about = json.loads(line)
            if "started" in about:
                self._started.put(about["started"])
            else:
                with self._news:
                    self._ended[about["ended"]] = about["code"]
                    self._news.notify_all()
        self._program.wait()
        self._started.put(None)
        with self._news:
            self._news.notify_all()


class _Copy:
    """A copy of a parent."""

    def __init__(self, parent: Parent, pid: int) -> None:
        self.parent, self.pid = parent, pid

    def poll(self) -> int | None:
        """See `Process`."""
        return self.parent.code(self.pid)

    def wait(self) -> int:
        """See `Process`."""
        return self.parent.until_ended(self.pid)
