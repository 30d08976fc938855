"""Run a script statement by statement; go back to a copy of the process if its made data lacked something.

Before the first statement that loads a model or data, the process forks, and the copy goes on. If a statement raises an
exception from which something is learnt, the copy ends, and a new copy goes on with data that has what was missing.
"""

from __future__ import annotations
import __future__

import ast
import builtins
import contextlib
import dis
import importlib
import os
import re
import shutil
import signal
import stat
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import CodeType
from typing import Any

from . import learn, packages
from .events import Asked, Learnt, Passed
from .files import Sources
from .hooks import wrap
from .nodes import every, imported, texts, used

_AGAIN = 75  # the exit code of a copy that has learnt something
_LATER = 20.0  # seconds of computation that a statement has after the last training
_MOST, _LONGEST = 24, 120.0  # copies, and seconds after which no further copy is made
_LOADS = frozenset(
    "from_pretrained load_dataset load_from_disk read_csv read_json read_excel read_parquet read_pickle open glob "
    "listdir walk Path chdir connect exists isfile isdir".split()
)
#: Functions with which a script looks for paths.
_QUESTIONS = {
    "os.path": ("exists", "isfile", "isdir"),
    "pathlib": ("Path.exists", "Path.is_file", "Path.is_dir"),
    "glob": ("glob",),
}
_DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
#: Methods that do not change their receiver.
_LOOKS = frozenset(
    "apply_chat_template batch_decode chat count decode describe encode fast_generate for_inference generate get head "
    "infer info items keys tail tolist transcribe values".split()
)
_FILE = re.compile(r"[^\s{}]+\.\w{1,8}")
_LIBRARIES = ("transformers", "trl", "peft", "datasets", "sentence_transformers", "sklearn", "pandas", "unsloth")


@dataclass
class Attempts:
    """The run of the script in one process.

    Args:
        sources: makes missing data.
        source: the text of the script, as it is run.
        is_alone: whether this is the run of one process, which learns; the others use what it has learnt.
        names: the global names of the script.
        gate: a file that exists once the run of one process has ended, or "". Other processes wait for it before the
            first statement that loads something.
    """

    sources: Sources
    source: str
    is_alone: bool
    names: dict[str, Any]
    gate: str = ""

    def __post_init__(self) -> None:
        self.log, self.schema = self.sources.log, self.sources.schema
        self.script, self.is_copy = self.log.script, False
        self.asked: list[str] = []

    def run(self) -> None:
        """Run the script to its end.

        Raises:
            BaseException: the exception that ended it, if nothing can be learnt from it and it cannot be passed over.
        """
        tree = ast.parse(self.source, self.script)
        features = (name for module, name in imported(tree) if module == "__future__" and name)
        flags = sum(getattr(__future__, name).compiler_flag for name in features)
        last = max((each.lineno for each in tree.body if _trains(each)), default=0)
        needed = {each.lineno for each in _needed(tree)}
        first = _first_load(tree)
        if self.is_alone:
            for module, names in _QUESTIONS.items():
                for name in names:
                    wrap(module, name, self._note_question)
        elif first is None:
            self._wait()
        for statement in tree.body:
            if statement is first:
                self._import_libraries(tree)
                if self.is_alone:
                    self._fork()
                self._wait()
            if self._is_passed(statement):
                self._bind_nothing(statement)
                continue
            code = compile(ast.Module([statement], []), self.script, "exec", flags, dont_inherit=True)
            try:
                with _limited(_LATER if self.is_alone and 0 < last < statement.lineno else 0.0):
                    exec(code, self.names)
            except BaseException as error:
                self._learn(error)
                self._wait()
                if self._is_passed(statement):
                    self._bind_nothing(statement)
                elif last == 0 or statement.lineno in needed or not self._passes_over(statement, error, last):
                    raise

    def _learn(self, error: BaseException) -> None:
        """End this copy if the exception says what its data lacked."""
        if not self.is_copy or isinstance(error, KeyboardInterrupt) or self.left <= 0:
            return
        if isinstance(error, SystemExit) and not error.code:
            return
        try:
            place = learn.place_of(error, self.script, self.source, self.schema)
            is_learnt = place is not None and learn.learn(place, self.sources.make, self.asked)
        except Exception:  # any failure here: the script's exception is reported instead
            is_learnt = False
        if not is_learnt:
            return
        self.schema.save()
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(Exception):
                stream.flush()
        os._exit(_AGAIN)

    def _passes_over(self, statement: ast.stmt, error: BaseException, last: int) -> bool:
        """Pass over a statement that training does not need, as other processes then do; return whether it did so."""
        if not self.is_alone or not isinstance(error, Exception):
            return False
        entries = learn.entries_of(error)
        inner = [entry.tb_lineno for entry in entries if entry.tb_frame.f_code.co_filename == self.script]
        self.schema.passed.append(statement.lineno)
        self.schema.save()
        about = {"after": statement.lineno > last, "own": _is_own(error, self.source)}
        line = inner[-1] if inner else statement.lineno
        self.log.write(Passed(type(error).__name__, str(error)[:600], line=line, **about))
        self._bind_nothing(statement)
        return True

    def _is_passed(self, statement: ast.stmt) -> bool:
        """Return whether the run of one process has passed over a statement, so that this process does so too."""
        return not self.is_alone and statement.lineno in self.schema.passed

    def _bind_nothing(self, statement: ast.stmt) -> None:
        for name in _bound(statement):
            self.names.setdefault(name, packages.Nothing())

    def _fork(self) -> None:
        """Go on in a copy; the original waits, and makes further copies as long as they learn something."""
        self.left = _MOST
        end = time.monotonic() + _LONGEST
        begin, stderr_size = self.log.size(), os.fstat(2).st_size if stat.S_ISREG(os.fstat(2).st_mode) else None
        there = set(_below("."))
        while True:
            child = os.fork()
            if not child:
                self.is_copy = True
                self.log.adopt()
                self.sources.make_known()  # with what has been learnt since
                return
            code = _ended(child)
            if code != _AGAIN:
                os._exit(code)
            self.left = self.left - 1 if time.monotonic() < end else 0
            self.log.cut(begin)
            if stderr_size is not None:
                os.ftruncate(2, stderr_size)
                os.lseek(2, stderr_size, os.SEEK_SET)
            self.schema.load()
            self.log.write(Learnt(self.schema.learnt))
            _remove([*(path for path in _below(".") if path not in there), *self.schema.files])

    def _wait(self) -> None:
        """Wait at the gate, then take what the run of one process has learnt."""
        if not self.gate:
            return
        while not os.path.exists(self.gate):
            time.sleep(0.05)
        self.gate = ""
        self.schema.load()
        with self.log.silent():
            self.sources.make_known()

    def _import_libraries(self, tree: ast.Module) -> None:
        """Import now what the script imports from large libraries later; otherwise every copy would import it again."""
        if any(name.split(".")[0] == "unsloth" for name, _ in imported(tree)) and "unsloth" not in sys.modules:
            return
        for module, name in imported(tree):
            if module.split(".")[0] in _LIBRARIES:
                with contextlib.suppress(Exception):  # it fails again where the script imports it
                    getattr(importlib.import_module(module), name, None)

    def _note_question(self, original: Any, path: Any, *args: Any, **given: Any) -> Any:
        """Record a path that the script looks for and does not find, without an exception."""
        found = original(path, *args, **given)
        if not found and isinstance(path, (str, os.PathLike)) and self.log.is_asked():
            self.asked.append(os.fspath(path))
            if learn.is_model(os.fspath(path)):  # a model is not made
                self.log.write(Asked(os.fspath(path)))
        return found


class TooLongError(Exception):
    """A statement after the last training took too long."""


@contextlib.contextmanager
def _limited(seconds: float) -> Iterator[None]:
    """End a statement after some seconds of computation; 0 sets no limit.

    Raises:
        TooLongError: in the statement.
    """

    def end(*_: object) -> None:
        raise TooLongError(f"it computes for more than {seconds:.0f} s")

    if not seconds:
        yield
        return
    before = signal.signal(signal.SIGPROF, end)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def _ended(child: int) -> int:
    """Wait for a copy, and return its exit code; pass requests for stack traces on to the copy."""
    signal.signal(signal.SIGUSR1, lambda *_: os.kill(child, signal.SIGUSR1))
    _, status = os.waitpid(child, 0)
    code = os.waitstatus_to_exitcode(status)
    return code if code >= 0 else 128 - code


def _below(folder: str) -> Iterator[str]:
    for at, folders, files in os.walk(folder):
        yield from (os.path.normpath(os.path.join(at, name)) for name in (*folders, *files))


def _remove(paths: list[str]) -> None:
    """Remove what a copy has written, and what was made for it."""
    for path in paths:
        if os.path.isdir(path):
            shutil.rmtree(path, ignore_errors=True)
        else:
            with contextlib.suppress(OSError):
                os.remove(path)


def _first_load(tree: ast.Module) -> ast.stmt | None:
    """Return the first statement that may load a model or data, itself or through a function of the script."""
    own = {each.name for each in tree.body if isinstance(each, _DEFINITIONS)}
    for statement in tree.body:
        if isinstance(statement, (ast.Import, ast.ImportFrom, *_DEFINITIONS)):
            continue
        if used(statement) & (_LOADS | own) and "devnull" not in ast.unparse(statement):
            return statement
    return None


def _trains(statement: ast.stmt) -> bool:
    if isinstance(statement, _DEFINITIONS):
        return False
    return any(ast.unparse(call.func).endswith(".train") for call in every(statement, ast.Call))


def _needed(tree: ast.Module, begins: Callable[[ast.stmt], bool] = _trains) -> Iterator[ast.stmt]:
    """Yield the backward slice of the trainings, or of others: statements that bind, change or write what it reads."""
    own = {each.name: _reads(each) for each in tree.body if isinstance(each, _DEFINITIONS)}
    read: set[str] = set()
    for statement in reversed(tree.body):
        if begins(statement) or _changed(statement) & read:
            if isinstance(statement, ast.Assign):  # their previous values are not read
                read -= {each.id for each in statement.targets if isinstance(each, ast.Name)}
            read |= _reads(statement)
            while more := set[str]().union(*(own[name] for name in read & own.keys())) - read:
                read |= more
            yield statement


def rests_on(source: str, line: int) -> set[str]:
    """Return the packages that the backward slice of the statement at a line imports."""
    needed = _needed(ast.parse(source), lambda each: each.lineno <= line <= (each.end_lineno or line))
    return {module.split(".")[0] for statement in needed for module, _ in imported(statement)}


def _names(statement: ast.stmt, *operations: str) -> set[str]:
    """Return the names to which the bytecode of a statement, and of functions in it, applies these operations."""
    codes = [compile(ast.Module([statement], []), "<statement>", "exec")]
    for code in codes:
        codes += (each for each in code.co_consts if isinstance(each, CodeType))
    return {str(step.argval) for code in codes for step in dis.get_instructions(code) if step.opname in operations}


def _reads(statement: ast.stmt) -> set[str]:
    """Return the names that a statement, or a function in it, reads, and the files that it names."""
    return _names(statement, "LOAD_NAME", "LOAD_GLOBAL") | {*_files(statement)}


def _bound(statement: ast.stmt) -> set[str]:
    """Return the names that a statement binds."""
    return _names(statement, "STORE_NAME", "STORE_GLOBAL")


def _files(node: ast.AST) -> Iterator[str]:
    """Yield the files that a statement names, without folders: another statement may name the folder, too."""
    return (os.path.basename(text) for text in texts(node) if _FILE.fullmatch(text))


def _changed(statement: ast.stmt) -> set[str]:
    """Return the names that a statement binds, those whose values it may change, and the files that it may write."""
    found = _bound(statement) | {*_files(statement)}
    for each in ast.walk(statement):
        root: ast.AST | None = None
        if isinstance(each, ast.Call) and isinstance(each.func, ast.Attribute) and each.func.attr not in _LOOKS:
            root = each.func
        elif isinstance(each, (ast.Attribute, ast.Subscript)) and not isinstance(each.ctx, ast.Load):
            root = each
        while isinstance(root, (ast.Attribute, ast.Subscript)):
            root = root.value
        if isinstance(root, ast.Name):
            found.add(root.id)
    return found


def _is_own(error: BaseException, source: str) -> bool:
    """Return whether the error is about a name that the script reads and never binds."""
    name = getattr(error, "name", None)
    if type(error) is not NameError or not name or hasattr(builtins, name):
        return False
    return name not in set[str]().union(*map(_bound, ast.parse(source).body))
