"""Watch what the script does to files, programs and the network; what leaves the rehearsal's folder is not done."""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import sys
import threading
import time
from typing import TYPE_CHECKING, Any

from . import events
from .hooks import wrap
from .toml import tables

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from .log import Log

#: What names of secrets have in them.
SECRET = re.compile(r"TOKEN|SECRET|PASSWORD|KEY|CREDENTIAL", re.IGNORECASE)
_CLONE = re.compile(
    r"git clone\b(?:\s+-\S+(?:\s+\d+)?)*\s+(\S+?([^/\s]+?)(?:\.git)?/?)(?:\s+([^-;&|\s]\S*))?\s*(?:$|[;&|])"
)  # its address, the last part of that, and the folder where one is given
#: What launchers set for each process, and what a script's setup block asks for.
LAUNCHED = re.compile(
    r"((LOCAL_|GROUP_|ROLE_)?(RANK|WORLD_SIZE)|UNSLOTH_(FSDP2|TP_SIZE))$|MASTER_|TORCHELASTIC|ACCELERATE_"
)
_MOMENT = 2.0  # seconds
_SYSTEM = ("/dev/", "/proc/", "/sys/")
_CHANGES = tables(__file__)["changes"]


class RefusedWriteError(PermissionError):
    """The script writes outside the rehearsal's folder."""


class RefusedHostError(ConnectionRefusedError):
    """The script asks another machine, `host`."""

    def __init__(self, host: str) -> None:
        super().__init__(f"a rehearsal reaches nothing outside this machine: {host}")
        self.host = host


class Outside:
    """The hooks of one process.

    Args:
        log: where events go.
        root: the folder of the rehearsal: nothing is written elsewhere.
        work: the working folder of the run: who writes what below it is recorded.
        is_trusted: the script may do to the outside what it wants.
        server: the port of what answers for servers that were not started.
        beside: the folder of the script, which may have a checkout of a repository that the script clones.
    """

    def __init__(
        self,
        log: Log,
        root: str,
        work: str,
        *,
        is_trusted: bool,
        beside: str,
        server: int,
    ) -> None:
        self.log, self.root, self.work, self.is_trusted = log, root, work, is_trusted
        self.beside, self.server = beside, server
        self.busy = False
        self.marker = os.path.join(os.path.dirname(work), "programs")  # there once a process has asked for a program
        self.started: list[tuple[Any, str, int | None]] = []  # programs that the script would have started
        self.given = {os.path.join(at, name) for at, _, names in os.walk(work) for name in names}

    def lay(self) -> None:
        """Watch from now on."""
        sys.addaudithook(self._audit)
        self._note_threads()
        self._cut_sleep()
        if not self.is_trusted:
            self._replace_programs()
            self._replace_servers()
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
        """Note a change of a path; refuse it outside the rehearsal's folder.

        A path below an open `folder` is part of the change of a whole tree, which has been noted.
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
            if not os.path.isdir(path):  # the folder of a temporary file, which tempfile names first
                self._changes(events.Write, path)
        elif isinstance(path, (str, os.PathLike)) and self.log.place():
            full = os.path.abspath(path)
            if full.startswith(self.work + os.sep):
                self.log.write(events.Read(os.path.relpath(full, self.work)))

    def _opens_database(self, path: Any) -> None:
        """Whoever opens a database of SQLite that the run did not begin with may write to it."""
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

    def _note_threads(self) -> None:
        """Remember the line at which a thread was started."""
        original = threading.Thread.start

        def start(thread: threading.Thread) -> None:
            vars(thread)["started_at"] = self.log.place()
            original(thread)

        threading.Thread.start = start  # type: ignore[assignment,method-assign]

    def _replace_programs(self) -> None:
        """Let programs that the script itself starts do nothing, with success."""
        original, signals = subprocess.Popen.__init__, subprocess.Popen.send_signal
        outside = self

        def init(self: Any, args: Any, *rest: Any, **kwargs: Any) -> None:
            if outside.log.is_asked(subprocess.__file__):
                command = args if isinstance(args, str) else " ".join(map(str, args))
                outside._clone(command, original)
                outside.log.write(events.Program(command))
                open(outside.marker, "w").close()
                args = [sys.executable, "-S", "-c", ""]
                kwargs |= {"shell": False, "executable": None, "cwd": None}
                outside.started.append((self, command, outside.log.place()))
            original(self, args, *rest, **kwargs)

        def send_signal(self: Any, number: int) -> None:  # terminate() and kill() call it
            signals(self, number)
            if any(process is self for process, _, _ in outside.started):
                self.wait()

        def system(command: Any) -> int:
            outside._clone(str(command), original)
            outside.log.write(events.Program(str(command)))
            return 0

        subprocess.Popen.__init__ = init  # type: ignore[method-assign]
        subprocess.Popen.send_signal = send_signal  # type: ignore[method-assign, assignment]
        os.system = system

    def left(self) -> Iterator[tuple[str, int | None]]:
        """Programs that the script has neither waited for nor ended, and where it started them."""
        yield from ((command[:80], line) for process, command, line in self.started if process.returncode is None)
        if self.is_trusted and (psutil := sys.modules.get("psutil")):
            children = psutil.Process().children()
            yield from ((each.name(), None) for each in children if each.status() != psutil.STATUS_ZOMBIE)

    def _clone(self, command: str, popen: Any) -> None:
        """Make what a command clones, of the checkout beside the script or by fetching it, where it may be."""
        found = _CLONE.search(command)
        if not found:
            return
        address, folder = found[1].strip("'\""), (found[3] or found[2]).strip("'\"")
        checkout = os.path.join(self.beside, folder)
        if os.path.isdir(checkout):  # of which the run's folder already has the files that the script names
            shutil.copytree(checkout, folder, ignore=shutil.ignore_patterns(".git"), dirs_exist_ok=True)
        elif self.is_trusted and not os.path.exists(folder):
            process = subprocess.Popen.__new__(subprocess.Popen)
            popen(process, ["git", "clone", "--depth", "1", "--quiet", address, folder])
            process.wait()
        self.log.write(events.Clone(address, folder, os.path.exists(folder)))

    def _cut_sleep(self) -> None:
        """Let the script itself sleep for a moment only: what it waits for is not there."""
        original = time.sleep

        def sleep(seconds: Any) -> None:
            original(min(seconds, _MOMENT) if self.log.is_asked() else seconds)

        time.sleep = sleep

    def _replace_servers(self) -> None:
        """Answer in the place of a server that was not started, once a process has asked for programs."""
        original = socket.socket.connect

        def connect(self_: Any, address: Any) -> None:
            has_programs = os.access(self.marker, os.F_OK)  # what asks `exists` is noted
            if has_programs and self_.family == socket.AF_INET and self.log.place():
                with socket.socket() as probe:  # one that was refused cannot be used again
                    try:
                        original(probe, address)
                    except ConnectionRefusedError:
                        self.log.write(events.Server(address[1]))
                        address = ("127.0.0.1", self.server)
            original(self_, address)

        socket.socket.connect = connect  # type: ignore[method-assign]

    def _note_write(self, original: Any, *args: Any, **kwargs: Any) -> Any:
        """Note what is written by native code, which Python's audit hooks do not see."""
        paths = (value for value in (*args[1:], *kwargs.values()) if isinstance(value, (str, os.PathLike)))
        self._changes(events.Write, next(paths, None))
        return original(*args, **kwargs)


#: What writes files by native code.
_WRITERS = (("torch", "save"), ("safetensors.torch", "save_file"), ("safetensors.torch", "save_model"))
_EVENTS: dict[str, Callable[..., None]] = {
    "open": Outside._opens,
    "socket.connect": Outside._connects,
    "socket.getaddrinfo": Outside._reaches,
    "sqlite3.connect": Outside._opens_database,
    "socket.bind": Outside._binds,
}
