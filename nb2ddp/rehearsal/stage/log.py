"""Write a process's events at once, one JSON object a line, so that a killed process leaves a complete log."""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Iterator
from typing import Any

from . import hooks
from .events import Event

#: Folders, at any place, of code that is not the user's.
_INSTALLED = ("unsloth_compiled_cache", "site-packages")


class Log:
    """The log of one process."""

    def __init__(self) -> None:
        self.script = self._beside = ""
        self.is_silent = False

    def watch(self, script: str) -> None:
        """Count calls from this script and from files next to it as the user's own."""
        self.script = script
        self._beside = os.path.dirname(os.path.abspath(script)) + os.sep

    def open(self, file: str, script: str) -> None:
        """Open the log.

        Args:
            file: the file for the lines.
            script: the path of the script; the line of an event is one of the script.
        """
        self.watch(script)
        self._pid = os.getpid()
        self._to = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    def adopt(self) -> None:
        """Continue the log in a copy of the process that opened it."""
        self._pid = os.getpid()

    def size(self) -> int:
        """Return the offset at which the next line begins."""
        return os.fstat(self._to).st_size

    def cut(self, size: int) -> None:
        """Remove what was written after this offset."""
        os.ftruncate(self._to, size)

    @contextlib.contextmanager
    def silent(self) -> Iterator[None]:
        """Write nothing within this block, in which the rehearsal acts, not the script."""
        self.is_silent = True
        try:
            yield
        finally:
            self.is_silent = False

    def place(self) -> int | None:
        """Return the innermost line of the script that is running in this thread, or None."""
        frame = sys._getframe(1)
        while frame is not None:
            if frame.f_code.co_filename == self.script:
                return frame.f_lineno
            frame = frame.f_back  # type: ignore[assignment]
        return None

    def is_asked(self, *between: str) -> bool:
        """Return whether the user's code, in the script or a file next to it, calls the function that calls this one.

        Args:
            between: files or folders whose functions may be between the two, as imports and hooks may.
        """
        frame: Any = sys._getframe(2)
        while frame is not None and frame.f_code.co_filename.startswith(("<frozen", hooks.__file__, *between)):
            frame = frame.f_back
        file = frame.f_code.co_filename if frame is not None else ""
        is_beside = file.startswith(self._beside) and not any(folder in file for folder in _INSTALLED)
        return bool(self.script) and (file == self.script or is_beside)

    def write(self, event: Event) -> None:
        """Append an event; without a line, it gets the script's running line."""
        if self.is_silent:
            return
        entry = {"kind": type(event).__name__, **vars(event), "line": event.line or self.place()}
        entry["helper"] = os.getpid() != self._pid  # forked by a loader or a pool: it acts for its parent
        os.write(self._to, (json.dumps(entry, default=str) + "\n").encode())
