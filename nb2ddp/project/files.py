"""Replace files atomically: no reader sees half a file, and a kill leaves none."""

from __future__ import annotations

import difflib
import errno
import os
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from nb2ddp.options import Options
from nb2ddp.results import NotebookError


def replace(files: Mapping[Path, bytes]) -> None:
    """Write several files so that they change together.

    All are first written to temporary files, so a full disk changes nothing; then each is renamed, in this order.
    An existing file keeps its mode. Folders are created.

    Args:
        files: the new content of each file.

    Raises:
        OSError: one cannot be written; none has changed.
    """
    aside: dict[Path, Path] = {}
    try:
        for path, content in files.items():
            check_target(path)
            path.parent.mkdir(parents=True, exist_ok=True)
            aside[path] = path.with_name(f".nb2ddp-{os.getpid()}-{path.name}")
            with aside[path].open("xb") as file:
                file.write(content)
            if path.exists():
                aside[path].chmod(path.stat().st_mode & 0o777)
        for path, written in aside.items():
            written.replace(path)
    finally:
        for written in aside.values():
            written.unlink(missing_ok=True)


def check_target(path: Path) -> None:
    """Refuse to replace anything but a plain writable file; a link may lead anywhere.

    Raises:
        OSError: the path is something else; the message names it.
    """
    if path.is_symlink():
        raise OSError(errno.ELOOP, "is a symbolic link; name its target", str(path))
    if path.exists() and not path.is_file():
        raise OSError(errno.EINVAL, "is not a regular file", str(path))
    if path.exists() and not os.access(path, os.W_OK):
        raise PermissionError(errno.EACCES, "is read-only", str(path))


def from_here(path: Path) -> Path:
    """Return a path relative to the current folder, if it lies below."""
    full = Path(os.path.normpath(path.absolute()))
    return full.relative_to(Path.cwd()) if full.is_relative_to(Path.cwd()) else path


def identities(path: Path) -> frozenset[object]:
    """Return keys of a file: two paths are the same file if they share a key, despite links and `..`."""
    keys: set[object] = {os.path.realpath(path)}
    with suppress(OSError):
        status = path.stat()
        keys.add((status.st_dev, status.st_ino))
    return frozenset(keys)


def text_of(path: Path) -> str:
    """Return a file's text with `\\n` as line end; empty if there is no file.

    Raises:
        OSError: it cannot be read, or is not a file.
    """
    if path.exists() and not path.is_file():
        raise OSError(errno.EINVAL, "is not a regular file", str(path))  # reading a pipe would wait
    try:
        return path.read_bytes().decode("utf-8", "surrogateescape").replace("\r\n", "\n")
    except (FileNotFoundError, NotADirectoryError):
        return ""


def reason(error: OSError) -> str:
    """Return the system's reason for an error, with the file's name."""
    place = f"{error.filename}: " if error.filename else ""
    return f"{place}{error.strerror or error}"


def default_folder() -> Path:
    """Return `$NB2DDP_CACHE_DIR`, or `nb2ddp` in the user's cache folder (on Linux `$XDG_CACHE_HOME` or `~/.cache`)."""
    if chosen := os.environ.get("NB2DDP_CACHE_DIR"):
        return Path(chosen)
    import platformdirs

    return Path(platformdirs.user_cache_dir("nb2ddp", appauthor=False))


#: The notebook of a job that reads standard input.
STDIN = Path("<stdin>")


@dataclass(frozen=True)
class Job:
    """One notebook to convert.

    Attributes:
        notebook: its file, or the file name of a link.
        script: the file to write.
        options: what to produce.
        link: the notebook's address; empty for a local file.
        is_named: False for one that was found in a folder or by a pattern.
        keep: which side to take where edits conflict with new lines: `mine`, `new`, or "" for neither;
            `nothing` replaces files that were edited by hand or that nb2ddp did not write.
        notes: messages on its options: which are those of the last conversion, and which differ from them.
        fails_on_warnings: a warning fails the run.
    """

    notebook: Path
    script: Path
    options: Options
    link: str = ""
    is_named: bool = True
    keep: str = ""
    notes: tuple[str, ...] = ()
    fails_on_warnings: bool = False

    @property
    def is_file(self) -> bool:
        """True for a local file, which can be read again."""
        return not self.link and self.notebook != STDIN

    @property
    def name(self) -> str:
        """The notebook's name in the script's first line."""
        return "notebook" if self.notebook == STDIN else self.notebook.stem

    @property
    def reference(self) -> str:
        """The notebook's path from the script's folder, for the line `convert again:`."""
        if self.link or self.notebook == STDIN:
            return self.link or "-"
        try:
            path = Path(os.path.relpath(self.notebook.absolute(), self.script.parent.absolute()))
        except ValueError:  # on another drive
            return self.notebook.name
        return path.as_posix()


class Mode(Enum):
    """What to do with the conversion of a job."""

    WRITE = "write"
    CHECK = "check"  #: write nothing; report what is stale
    DIFF = "diff"  #: write nothing; the result's text is what would change in the files
    TEXT = "text"  #: write nothing; the result's text is the script


def read(path: Path, link: str = "") -> bytes:
    """Return the content of a regular file, of standard input, or of the notebook that a link shows.

    Args:
        path: the file; not used if there is a link.
        link: the notebook's address; empty for a local file.

    Raises:
        NotebookError: there is no such file, it is not a regular file, or the link leads to none.
        OSError: it cannot be read.
    """
    if link:
        from nb2ddp.project.links import fetch

        return fetch(link)
    if path == STDIN:
        return sys.stdin.buffer.read()
    if path.is_dir():
        raise NotebookError("is a folder, not a notebook")
    if not path.exists():
        raise NotebookError(f"there is no such file{near(path)}")
    if not path.is_file():
        raise NotebookError("is not a regular file")
    return path.read_bytes()


#: The commands that a misspelled argument may mean instead of a file (`nb2ddp.cli.main`).
_COMMANDS = ("run", "rehearse", "estimate", "explain")


def near(path: Path) -> str:
    """Return a question that suggests a file or a command of a similar name; empty if there is none."""
    names = os.listdir(path.parent) if path.parent.is_dir() else []  # noqa: PTH208 - names
    stems = {each: each for each in _COMMANDS} | {Path(name).stem: str(path.with_name(name)) for name in names}
    found = difflib.get_close_matches(path.stem, stems, n=1, cutoff=0.7)
    return f"; did you mean {stems[found[0]]}?" if found else ""


def decode(content: bytes) -> str:
    """Decode a notebook file.

    Raises:
        NotebookError: it is not UTF-8.
    """
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise NotebookError(f"not a notebook: not UTF-8 ({error.reason} at byte {error.start})") from None
