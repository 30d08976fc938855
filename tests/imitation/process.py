"""One process of a job: executes a script, and notes what it does to others.

Runs in a child of `tests.imitation.server`, in an empty folder, with no network and no other programs.
"""

from __future__ import annotations

import ast
import asyncio
import atexit
import builtins
import contextlib
import gc
import getpass
import io
import json
import os
import random
import signal
import subprocess
import sys
import time
import traceback
import types
import urllib.request
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np

SCRIPT = "train.py"
SECONDS = 5  # of computing, for a script
#: The file, in a job's folder, that names the programs that it started.
STARTED = "started"
#: What a file holds that a notebook reads and that nothing in the imitation made.
CONTENT = {".json": '[{"text": "a"}, {"text": "b"}]', ".csv": "text,label\na,0\nb,1\n"}


class TimeLimit(BaseException):
    """The script computes for too long."""


class Process:
    """What a process has done so far, and its line to the others."""

    def __init__(self, rank: int, world: int, folder: Path, line: Connection) -> None:
        self.rank, self.world, self.folder, self.line = rank, world, folder, line
        self.notes: list[tuple[str, str, int]] = []
        self.seeded: set[str] = set()  # generators of random numbers
        self.shown = io.StringIO()
        self.shown_before = 0  # how much of it when training ended
        self.globals: dict[str, Any] = {}

    # -- what the others learn ---------------------------------------------------------------------------------

    def note(self, kind: str, what: str) -> None:
        """Note that a line of the script does something to others."""
        self.notes.append((kind, what.replace(str(self.folder), "."), self.place()))
        if kind == "starts":
            with (self.folder / STARTED).open("a") as file:
                file.write(what + "\n")

    def is_made_by_program(self, path: Path) -> bool:
        """True where the command of a program that a process started names a path, or a folder that it is in."""
        started = self.folder / STARTED
        words = set(started.read_text().split()) if started.is_file() else set()
        return any(str(part) in words for part in (path, *path.parents[:-1]))

    def place(self) -> int:
        """The line of the script that is executed."""
        frame = sys._getframe(1)
        while frame.f_back and Path(frame.f_code.co_filename).name != SCRIPT:
            frame = frame.f_back
        return frame.f_lineno if Path(frame.f_code.co_filename).name == SCRIPT else 0

    def joint(self, name: str, value: Any = None, trainer: dict[str, Any] | None = None) -> list[Any]:
        """Meet the other processes at a call that all must make; returns each one's value."""
        known = {} if trainer is None else self.values(trainer)
        self.line.send({"joint": name, "line": self.place(), "value": value, "names": known})
        return list(self.line.recv())

    def values(self, trainer: dict[str, Any]) -> dict[str, str]:
        """The plain values of the script's names, and of a trainer's rows and arguments, as text."""
        values = {name: show(value) for name, value in self.globals.items() if not name.startswith("__")}
        values["(rows of the trainer)"] = show(trainer.get("train_dataset"))
        arguments = getattr(trainer.get("args"), "__dict__", {})
        values |= {f"args.{name}": show(value) for name, value in arguments.items() if not name.startswith("_")}
        for generator, state in generators().items():
            if generator in self.seeded:
                values[f"(random numbers of {generator})"] = str(hash(state))
        here = str(self.folder)
        return {name: value.replace(here, ".") for name, value in values.items() if value is not None}

    # -- random numbers ----------------------------------------------------------------------------------------

    def seed(self, number: Any) -> None:
        """What `transformers.set_seed` does."""
        random.seed(int(number))
        np.random.seed(int(number))

    def seeds(self, generator: str, seed: Callable[..., None]) -> Callable[..., None]:
        """The function that seeds a generator, which is known to be seeded then."""

        def known(*args: Any, **kwargs: Any) -> None:
            self.seeded.add(generator)
            seed(*args, **kwargs)

        return known

    def draws_alike(self, name: str, line: int, call: Callable[[], Any]) -> None:
        """Note a reward whose random numbers are not those of the other processes."""
        before = generators()
        call()
        for generator, after in generators().items():
            if after != before[generator]:
                self.notes.append(("draws", f"{name}: {generator} {hash(after)}", line))

    # -- the script --------------------------------------------------------------------------------------------

    def execute(self, cells: list[str]) -> tuple[str, str, int, int]:
        """Execute a script (one cell) or a notebook's cells: how it ended, why, at which line of which cell."""
        module = types.ModuleType("__main__")
        sys.modules["__main__"] = module
        self.globals = module.__dict__
        self.globals["__file__"] = str(self.folder / SCRIPT)
        number = 0
        try:
            for number, cell in enumerate(cells):  # noqa: B007 # where it ends
                self.execute_cell(cell, whole=len(cells) == 1)
            return ("end", "", 0, number)
        except SystemExit as error:
            return ("exit", str(error.code or 0), last_line(error), number)
        except BaseException as error:
            return (type(error).__name__, str(error).replace(str(self.folder), "."), last_line(error), number)
        finally:
            real_timer(signal.ITIMER_PROF, 0)

    def execute_cell(self, cell: str, whole: bool) -> None:
        """Execute a cell; in one that installs, a statement that fails is no end: the script has nothing of it."""
        if whole:
            exec(compile(cell, SCRIPT, "exec", dont_inherit=True), self.globals)
            return
        installs = "pip" in cell and "install" in cell
        body = ast.parse(cell).body
        for statement in body:
            if isinstance(statement, ast.Expr) and statement is body[-1] and not cell.rstrip().endswith(";"):
                shown = ast.Call(ast.Name("display", ast.Load()), [statement.value], [])
                statement.value = ast.copy_location(shown, statement.value)
            part = ast.fix_missing_locations(ast.Module([statement], []))
            code = compile(part, SCRIPT, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True)
            with contextlib.suppress(*[Exception] * installs):
                if code.co_flags & 0x80:  # awaits
                    asyncio.run(eval(code, self.globals))
                else:
                    exec(code, self.globals)


def last_line(error: BaseException) -> int:
    """The script's line that an error came from."""
    if isinstance(error, SyntaxError) and error.filename == SCRIPT:
        return error.lineno or 0
    lines = [f.lineno or 0 for f in traceback.extract_tb(error.__traceback__) if Path(f.filename).name == SCRIPT]
    return lines[-1] if lines else 0


def generators() -> dict[str, str]:
    """The states of the random number generators that libraries share."""
    return {"random": str(random.getstate()), "numpy": str(np.random.get_state())}


def show(value: Any, depth: int = 0) -> Any:
    """A plain value as text: numbers, text, lists, dictionaries and sets of such; None for any other."""
    if type(value) is float and value >= CLOCK:
        return "a time"
    value = getattr(value, "__dict__", {}).get("_rows", value)  # a data set's
    if value is None or isinstance(value, (bool, int, float, str, bytes, np.number)):
        return str.__str__(value)[:200] if isinstance(value, str) else repr(value)
    if depth > 6:
        return "..."
    if isinstance(value, dict):
        return "{" + ", ".join(f"{show(k)}: {show(v, depth + 1)}" for k, v in list(value.items())[:50]) + "}"
    if isinstance(value, (list, tuple)):
        return f"{len(value)} [" + ", ".join(str(show(v, depth + 1)) for v in value[:50]) + "]"
    if isinstance(value, (set, frozenset)):
        return f"{len(value)} {{" + ", ".join(sorted(str(show(v, depth + 1)) for v in value)) + "}"
    if isinstance(value, np.ndarray):
        return f"{value.shape} {value.ravel()[:50].tolist()}"
    return None


# -- the sandbox -------------------------------------------------------------------------------------------------

CLOCK = 2_000_000_000.0


def confine(process: Process) -> None:
    """Keep a script in its folder: no program, no network, its own home and clock."""
    folder = process.folder
    for name in ("home", "tmp", "work"):
        (folder / name).mkdir(exist_ok=True)
    os.chdir(folder / "work")
    kept = {name: os.environ[name] for name in ("PATH", "LANG") if name in os.environ}
    os.environ.clear()
    os.environ.update(kept, HOME=str(folder / "home"), TMPDIR=str(folder / "tmp"), PYTHONHASHSEED="0")
    if process.world > 1:
        ranks = {"RANK": process.rank, "LOCAL_RANK": process.rank}
        sizes = {"WORLD_SIZE": process.world, "LOCAL_WORLD_SIZE": process.world}
        os.environ.update({name: str(value) for name, value in {**ranks, **sizes}.items()})
    sys.argv, sys.path[0], sys.dont_write_bytecode = [SCRIPT], str(folder / "work"), True
    null = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(null, stream)
    sys.stdout = process.shown
    random.seed(f"rank {process.rank}")
    np.random.seed(process.rank)
    imitate_system(process)
    imitate_files(process)
    sys.addaudithook(lambda event, args: audit(process, event, args))
    signal.signal(signal.SIGPROF, stop)
    real_timer(signal.ITIMER_PROF, SECONDS, 0.5)


real_timer = signal.setitimer


def stop(*args: Any) -> None:
    raise TimeLimit("computes for ever")


class Program(subprocess.Popen):  # type: ignore[type-arg]
    """A program that is not started, and succeeds at once."""

    process: Process

    def __init__(self, args: Any, *rest: Any, **kwargs: Any) -> None:
        self.process.note("starts", args if isinstance(args, str) else " ".join(map(str, args)))
        text = any(kwargs.get(name) for name in ("text", "universal_newlines", "encoding"))
        self.args, self.returncode, self.pid = args, 0, 0
        self.stdin, self.empty = None, "" if text else b""
        self.stdout = self.stderr = io.StringIO("") if text else io.BytesIO(b"")

    def communicate(self, *args: Any, **kwargs: Any) -> Any:
        return self.empty, self.empty

    def wait(self, *args: Any, **kwargs: Any) -> int:
        return 0

    def poll(self) -> int:
        return 0

    def send_signal(self, number: int) -> None:
        pass

    def __del__(self, *args: Any) -> None:
        pass

    def __exit__(self, *args: Any) -> None:
        pass


def replace(module: Any, **parts: Any) -> None:
    """Replace parts of a module."""
    for name, part in parts.items():
        setattr(module, name, part)


def imitate_system(process: Process) -> None:
    """Programs, the clock, questions and other machines, imitated."""
    from tests.imitation.data import Row
    from tests.imitation.things import Imitation, made

    loads = json.loads
    replace(json, loads=lambda text, **kwargs: Row() if isinstance(text, Imitation) else loads(text, **kwargs))
    Program.process = process
    replace(subprocess, Popen=Program)
    seconds = iter(range(10**9))

    def clock() -> float:
        return CLOCK + 1000 * process.rank + 0.01 * next(seconds)

    def system(command: Any, *args: Any) -> int:
        process.note("starts", str(command))
        return 0

    def ask(prompt: Any = "", *args: Any) -> str:
        process.note("asks", "a person")
        return "an answer"

    replace(time, time=clock, perf_counter=clock, monotonic=clock, sleep=lambda seconds: None)
    replace(time, time_ns=lambda: int(clock() * 1e9), perf_counter_ns=lambda: int(clock() * 1e9))
    replace(signal, setitimer=lambda which, wait, every=0: real_timer(which, wait / 100))
    replace(signal, alarm=lambda wait: int(real_timer(signal.ITIMER_REAL, wait / 100)[0]))
    for allocate in ("zeros", "ones", "empty"):
        setattr(np, allocate, small(getattr(np, allocate)))
    replace(random, seed=process.seeds("random", random.seed))
    replace(np.random, seed=process.seeds("numpy", np.random.seed))
    replace(os, system=system)
    replace(gc, collect=lambda *args: None)
    replace(builtins, input=ask)
    replace(getpass, getpass=ask)

    def fetch(address: Any, target: Any = None, *args: Any, **kwargs: Any) -> Any:
        process.note("asks", getattr(address, "full_url", str(address)))
        return made("urlopen(...)")

    replace(urllib.request, urlopen=fetch, urlretrieve=fetch)


def small(allocate: Callable[..., Any]) -> Callable[..., Any]:
    """A function of numpy that makes an array, never of gigabytes."""
    return lambda shape, *args, **kwargs: allocate(
        min(shape, 10**6) if isinstance(shape, int) else shape, *args, **kwargs
    )


def imitate_files(process: Process) -> None:
    """Files that are missing can be read; folders list in another order in each process."""
    real_open, real_list, real_exists = io.open, os.listdir, os.path.exists
    real_remove, real_enter = os.remove, os.chdir

    def open_(file: Any, mode: str = "r", *args: Any, **kwargs: Any) -> Any:
        try:
            return real_open(file, mode, *args, **kwargs)
        except FileNotFoundError:
            if set(mode) & set("wax+"):
                raise
        process.note("misses", os.path.relpath(os.fspath(file)))
        text = CONTENT.get(Path(os.fspath(file)).suffix, "a line\nanother line\n")
        return io.BytesIO(text.encode()) if "b" in mode else io.StringIO(text)

    def list_(folder: Any = ".") -> Any:
        try:
            return sorted(real_list(folder), reverse=process.rank == 0)
        except FileNotFoundError:
            process.note("misses", os.path.relpath(os.fspath(folder)))
            return []

    def remove(path: Any, *args: Any, **kwargs: Any) -> None:
        with contextlib.suppress(FileNotFoundError):
            real_remove(path, *args, **kwargs)

    def enter(folder: Any) -> None:
        Path(folder).mkdir(parents=True, exist_ok=True)
        real_enter(folder)

    def exists(path: Any) -> bool:
        return real_exists(path) or process.is_made_by_program(Path(path))

    replace(os, remove=remove, unlink=remove, chdir=enter, listdir=list_)
    replace(os.path, exists=exists)
    replace(io, open=open_)
    replace(builtins, open=open_)


FREE = ("/dev/", "/proc/")
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT


def audit(process: Process, event: str, args: tuple[Any, ...]) -> None:
    """Note what Python itself does to files; refuse what is outside of the folder."""
    if event == "open":
        path, mode, flags = args
        if isinstance(path, int) or not (set(mode or "") & set("wax+") or (flags or 0) & WRITING):
            return
    elif event in ("os.remove", "os.rename", "os.rmdir", "os.symlink", "os.link", "os.truncate", "os.mkdir"):
        path = args[0]
    elif event in ("subprocess.Popen", "os.exec", "os.posix_spawn", "os.fork", "socket.connect", "socket.bind"):
        process.note("starts" if "socket" not in event else "asks", f"{event} {args[0]!s:.80}")
        raise PermissionError(f"{event} is not imitated")
    else:
        return
    whole = os.path.abspath("" if isinstance(path, int) else os.fsdecode(path))  # noqa: PTH100 # links stay
    if whole.startswith((*FREE, str(process.folder / STARTED))):
        return
    if not whole.startswith(str(process.folder)):
        process.note("writes", f"outside of the folder: {whole}")
        raise PermissionError(f"{event} outside of the folder: {whole}")
    if event != "os.mkdir":  # `exist_ok`; without it, the second process fails
        process.note("writes", os.path.relpath(whole, process.folder / "work"))


# -- the notebook itself -----------------------------------------------------------------------------------------


def display(*values: Any, **kwargs: Any) -> None:
    print(*[value for value in values if value is not None], sep="\n")


class Shell:
    """What IPython gives a notebook's code."""

    def __init__(self, process: Process) -> None:
        self.process = process

    def run_cell_magic(self, name: str, line: str, body: str) -> None:
        if name in ("capture", "time", "timeit", "prun"):
            exec(compile(body, SCRIPT, "exec"), self.process.globals)

    def run_line_magic(self, name: str, line: str, *args: Any) -> None:
        if name == "cd":
            os.chdir(line.strip())
        elif name == "env" and "=" in line:
            name, value = line.split("=", 1)
            os.environ[name.strip()] = value.strip()

    def system(self, command: str) -> None:
        pass

    def getoutput(self, command: str, *args: Any) -> Any:
        from tests.imitation.things import made

        return made("getoutput")


def run(rank: int, world: int, folder: Path, cells: list[str], line: Connection) -> None:
    """Be one process of a job, from its start to its end; never returns."""
    from tests.imitation import things

    process = Process(rank, world, folder, line)
    things.Imitation.process = process
    sys.meta_path.insert(0, things.Finder())
    line.recv()  # its turn to start
    confine(process)
    if len(cells) > 1:
        shell = Shell(process)
        replace(builtins, get_ipython=lambda: shell, display=display)
    end = process.execute(cells)
    atexit._run_exitfuncs()
    line.send({"end": end, "notes": process.notes, "shown": process.shown.getvalue()[process.shown_before :]})
    os._exit(0)
