"""Watch what the script does to files, programs and the network; prevent what goes beyond the rehearsal's folder."""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from . import events
from .hooks import wrap
from .log import Log
from .toml import tables

#: Words in the names of secrets.
SECRET = re.compile(r"TOKEN|SECRET|PASSWORD|KEY|CREDENTIAL", re.IGNORECASE)
_CLONE = re.compile(
    r"git clone\b(?:\s+-\S+(?:\s+\d+)?)*\s+(\S+?([^/\s]+?)(?:\.git)?/?)(?:\s+([^-;&|\s]\S*))?\s*(?:$|[;&|])"
)  # its address, the last part of the address, and the folder if one is given
#: Variables that launchers set for each process, and that a script's setup block reads.
LAUNCHED = re.compile(
    r"((LOCAL_|GROUP_|ROLE_)?(RANK|WORLD_SIZE)|UNSLOTH_(FSDP2|TP_SIZE))$|MASTER_|TORCHELASTIC|ACCELERATE_"
)
_MOMENT = 2.0  # seconds
_SYSTEM = ("/dev/", "/proc/", "/sys/")
_CHANGES = tables(__file__)["changes"]


class RefusedWriteError(PermissionError):
    """The script writes outside the rehearsal's folder."""


class RefusedHostError(ConnectionRefusedError):
    """The script contacts another machine, `host`."""

    def __init__(self, host: str) -> None:
        super().__init__(f"a rehearsal reaches nothing outside this machine: {host}")
        self.host = host


@dataclass
class Outside:
    """The hooks of one process.

    Args:
        log: the log for events.
        root: the folder of the rehearsal: nothing is written elsewhere.
        work: the working folder of the run: every write below it is recorded.
        is_trusted: whether the script may affect anything outside.
        server: the port of the server that replaces those that were not started.
        beside: the folder of the script, which may have a checkout of a repository that the script clones.
    """

    log: Log
    root: str
    work: str
    is_trusted: bool
    beside: str
    server: int

    def __post_init__(self) -> None:
        self.busy = False
        self.marker = f"{os.path.dirname(self.work)}/programs"  # exists once a process has asked for a program
        self.started: list[tuple[Any, str, int | None]] = []  # programs that the script would have started
        self.given = {os.path.join(at, name) for at, _, names in os.walk(self.work) for name in names}

    def lay(self) -> None:
        """Watch from now on."""
        sys.addaudithook(self._audit)
        wrap(threading.Thread, "start", self._start_thread)
        wrap(time, "sleep", self._sleep)
        if not self.is_trusted:
            wrap(subprocess.Popen, "__init__", self._start_program)
            wrap(subprocess.Popen, "send_signal", self._end_program)
            wrap(os, "system", self._run_command)
            wrap(socket.socket, "connect", self._connect)
        for module, name in _WRITERS:
            wrap(module, name, self._note_write)

    def _audit(self, event: str, args: tuple[Any, ...]) -> None:
        handle, changes = _EVENTS.get(event), _CHANGES.get(event, ())
        if self.busy or not (handle or changes):
            return
        self.busy = True
        try:
            if handle:
                handle(self, *args)
            for kind, path, *folder in changes:
                self._changes(events.KINDS[kind], args[path], *(args[each] for each in folder))
        finally:
            self.busy = False

    def _changes(self, kind: Any, path: Any, folder: int = -1) -> None:
        """Record a change of a path; refuse it outside the rehearsal's folder.

        A path below an open `folder` is part of the change of a whole tree, which has been recorded.
        """
        if not isinstance(path, (str, bytes, os.PathLike)) or folder != -1:
            return
        full = os.path.abspath(os.fsdecode(path))
        if full.startswith(self.work + os.sep):
            self.log.write(kind(os.path.relpath(full, self.work)))
        elif not full.startswith((self.root + os.sep, *_SYSTEM)) and not self.is_trusted and "__pycache__" not in full:
            raise RefusedWriteError(f"a rehearsal writes nothing outside its folder: {full}")

    def _opens(self, path: Any, mode: Any, flags: Any) -> None:
        if isinstance(flags, int) and flags & (os.O_WRONLY | os.O_RDWR):
            if not os.path.isdir(path):  # the folder of a temporary file, which tempfile opens first
                self._changes(events.Write, path)
        elif isinstance(path, (str, os.PathLike)) and self.log.place():
            full = os.path.abspath(path)
            if full.startswith(self.work + os.sep):
                self.log.write(events.Read(os.path.relpath(full, self.work)))

    def _opens_database(self, path: Any) -> None:
        """Record a write if the script opens an SQLite database that did not exist when the run began."""
        name = os.fsdecode(path) if isinstance(path, (str, bytes, os.PathLike)) else ""
        is_file = name and not name.startswith((":memory:", "file:"))
        if is_file and os.path.abspath(name) not in self.given:
            self._changes(events.Write, name)

    def _connects(self, _: Any, address: Any) -> None:
        if isinstance(address, tuple):
            self._reaches(address[0])

    def _reaches(self, host: Any, *_: Any) -> None:
        name = host.decode() if isinstance(host, bytes) else host or ""
        if name not in ("localhost", "::1", "", socket.gethostname()) and not name.startswith("127."):
            self.log.write(events.Connect(name))
            if not self.is_trusted:
                raise RefusedHostError(name)

    def _binds(self, _: Any, address: Any) -> None:
        if isinstance(address, tuple) and len(address) > 1 and address[1] and self.log.place():
            self.log.write(events.Serve(address[1]))

    def _start_thread(self, original: Any, thread: threading.Thread) -> None:
        """Record the line at which a thread is started."""
        vars(thread)["started_at"] = self.log.place()
        original(thread)

    def _start_program(self, original: Any, process: Any, args: Any, *rest: Any, **kwargs: Any) -> None:
        """Replace a program that the script itself starts by one that does nothing and succeeds."""
        if self.log.is_asked(subprocess.__file__):
            command = args if isinstance(args, str) else " ".join(map(str, args))
            self._ask_for(command)
            open(self.marker, "w").close()
            args = [sys.executable, "-S", "-c", ""]
            kwargs |= {"shell": False, "executable": None, "cwd": None}
            self.started.append((process, command, self.log.place()))
        original(process, args, *rest, **kwargs)

    def _end_program(self, original: Any, process: Any, number: int) -> None:
        """Wait for the end of a replaced program after a signal, which terminate() and kill() also send."""
        original(process, number)
        if any(each is process for each, _, _ in self.started):
            process.wait()

    def _run_command(self, _: Any, command: Any) -> int:
        """Make `os.system` do nothing, and report success."""
        self._ask_for(str(command))
        return 0

    def left(self) -> Iterator[tuple[str, int | None]]:
        """Yield the programs that the script has neither waited for nor ended, and where it started them."""
        yield from ((command[:80], line) for process, command, line in self.started if process.returncode is None)
        if self.is_trusted and (psutil := sys.modules.get("psutil")):
            children = psutil.Process().children()
            yield from ((each.name(), None) for each in children if each.status() != psutil.STATUS_ZOMBIE)

    def _ask_for(self, command: str) -> None:
        """Record a command, and copy what it clones from the checkout next to the script."""
        if found := _CLONE.search(command):
            address, folder = found[1].strip("'\""), (found[3] or found[2]).strip("'\"")
            checkout = os.path.join(self.beside, folder)
            if os.path.isdir(checkout):  # the run's folder already has those of its files that the script names
                shutil.copytree(checkout, folder, ignore=shutil.ignore_patterns(".git"), dirs_exist_ok=True)
            self.log.write(events.Clone(address, folder, os.path.exists(folder)))
        self.log.write(events.Program(command))

    def _sleep(self, original: Any, seconds: Any) -> None:
        """Let the script itself sleep only for a moment: what it waits for does not exist."""
        original(min(seconds, _MOMENT) if self.log.is_asked() else seconds)

    def _connect(self, original: Any, own: Any, address: Any) -> None:
        """Answer in place of a server that was not started, once a process has asked for a program."""
        has_programs = os.access(self.marker, os.F_OK)  # calls of `exists` are recorded
        if has_programs and own.family == socket.AF_INET and self.log.place():
            with socket.socket() as probe:  # a refused socket cannot be used again
                try:
                    original(probe, address)
                except ConnectionRefusedError:
                    self.log.write(events.Server(address[1]))
                    address = ("127.0.0.1", self.server)
        original(own, address)

    def _note_write(self, original: Any, *args: Any, **kwargs: Any) -> Any:
        """Record files that native code writes, which Python's audit hooks do not see."""
        paths = (value for value in (*args[1:], *kwargs.values()) if isinstance(value, (str, os.PathLike)))
        self._changes(events.Write, next(paths, None))
        return original(*args, **kwargs)


#: Functions that write files in native code.
_WRITERS = (("torch", "save"), ("safetensors.torch", "save_file"), ("safetensors.torch", "save_model"))
_EVENTS: dict[str, Callable[..., None]] = {
    "open": Outside._opens,
    "socket.connect": Outside._connects,
    "socket.getaddrinfo": Outside._reaches,
    "sqlite3.connect": Outside._opens_database,
    "socket.bind": Outside._binds,
}
