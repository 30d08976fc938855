"""Find the notebooks that a command line names, and where their scripts go."""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from itertools import takewhile
from pathlib import Path

from pathspec import GitIgnoreSpec

from nb2ddp.notebook.reader import OTHER_FORMATS, is_python_notebook, read_notebook
from nb2ddp.project.files import near
from nb2ddp.project.links import file_name, is_link
from nb2ddp.results import NotebookError
from nb2ddp.script import stamp
from nb2ddp.script.launch import LAUNCHING
from nb2ddp.script.modules import hidden, other_name

#: Folders that contain copies of notebooks, or notebooks of other people.
SKIPPED_FOLDERS = frozenset({"node_modules", "__pycache__", "site-packages"})
_GLOB = frozenset("*?[")


class InputError(ValueError):
    """The command line is wrong as a whole; the message is one sentence for the person who typed it."""


@dataclass(frozen=True)
class Input:
    """A notebook.

    Attributes:
        path: the file.
        root: the folder whose tree the output folder mirrors.
        link: its address; empty for a local file.
        is_named: True if an argument names the notebook itself, not its folder or a pattern.
    """

    path: Path
    root: Path
    link: str = ""
    is_named: bool = False


def named(argument: str) -> Input:
    """Return the notebook that an argument names: a file or a link."""
    if is_link(argument):
        return Input(Path(file_name(argument)), Path(), argument, is_named=True)
    return Input(Path(argument), Path(argument).parent, is_named=True)


def is_notebook_name(name: str) -> bool:
    """Return whether a name is that of an .ipynb file, in upper or lower case."""
    return name.lower().endswith(".ipynb")


def is_notebook(path: Path) -> bool:
    """Return whether a file is a notebook in any format; launching notebooks and scripts of nb2ddp are not."""
    if is_notebook_name(path.name):
        return not path.name.lower().endswith(LAUNCHING)
    if path.suffix.lower() != ".py" or path.with_suffix(".ipynb").exists():
        return False
    text = _text(path)
    return is_python_notebook(text) and stamp.read(text) is None


def _text(path: Path) -> str:
    """Return a file's text; empty if it cannot be read as text."""
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return ""


def find(arguments: Sequence[str]) -> list[Input]:
    """Find notebooks.

    Args:
        arguments: links, files, folders (searched at all depths, except what git ignores, hidden folders and
            virtual environments) and patterns such as `nb/**/*.ipynb`, which need no shell.

    Returns:
        Each notebook once, in the order of the arguments and by path within a folder.

    Raises:
        InputError: an argument is not a notebook, or matches none.
    """
    notebooks: dict[Path | str, Input] = {}
    for argument in arguments:
        inputs = list(_of(argument))
        if not inputs:
            raise InputError(f"{argument}: no notebook (.ipynb, marimo, percent or downloaded script) there")
        for notebook in inputs:
            notebooks.setdefault(notebook.link or notebook.path.absolute(), notebook)
    return list(notebooks.values())


def _of(argument: str) -> Iterator[Input]:
    if is_link(argument):
        yield named(argument)
        return
    path = Path(argument)
    if path.is_dir():
        yield from (Input(each, path) for each in _walk(path))
    elif path.exists() or path.is_symlink() or not _GLOB & set(argument):
        ending = path.suffix.lower()
        if ending not in (".ipynb", ".py") and not (ending in OTHER_FORMATS and path.exists()):
            if path.exists():
                raise InputError(f"{argument}: not a notebook (.ipynb or .py) or a folder")
            raise InputError(f"{argument}: no such file or folder{near(path)}")
        check_source(path)
        yield named(argument)
    else:
        root = _fixed_part(path)
        for match in map(Path, sorted(glob.glob(argument, recursive=True))):  # noqa: PTH207 - takes absolute ones too
            if not match.is_dir() and is_notebook(match) and ".ipynb_checkpoints" not in match.parts:
                yield Input(match, root)


def check_source(path: Path) -> None:
    """Refuse a script that nb2ddp wrote.

    Raises:
        InputError: names the command that converts its notebook again.
    """
    line = stamp.read(_text(path)) if path.suffix.lower() == ".py" and path.is_file() else None
    if line is not None:
        raise InputError(
            f"{path} is a script that nb2ddp wrote, not a notebook; to convert its notebook again, type in its folder: "
            f"{line.command}"
        )


def _fixed_part(pattern: Path) -> Path:
    """Return the folder in which a pattern begins: `nb/**/*.ipynb` -> `nb`."""
    return Path(*takewhile(lambda part: not _GLOB & set(part), pattern.parts[:-1]))


def _walk(folder: Path) -> Iterator[Path]:
    """Yield the notebooks below a folder, sorted by path."""
    ignores = _ignoring(folder)
    for name, folders, names in os.walk(folder):
        here = Path(name)
        folders[:] = sorted(
            entry
            for entry in folders
            if not entry.startswith(".")
            and entry not in SKIPPED_FOLDERS
            and not (here / entry / "pyvenv.cfg").exists()
            and not ignores(here / entry, is_folder=True)
        )
        for entry in sorted(names):
            path = here / entry
            if path.is_file() and not ignores(path) and is_notebook(path):
                yield path


def _ignoring(folder: Path) -> Callable[..., bool]:
    """Return what says whether git ignores a path below a folder, by each .gitignore up to the repository's top.

    Of those that match a path, the deepest decides.
    """
    full = folder.resolve()
    top = next((each for each in (full, *full.parents) if (each / ".git").exists()), full)

    @cache
    def spec(folder: Path) -> GitIgnoreSpec:
        lines: list[str] = []
        with suppress(OSError):
            lines = (folder / ".gitignore").read_text(encoding="utf-8", errors="replace").splitlines()
        return GitIgnoreSpec.from_lines(lines)

    def ignores(path: Path, *, is_folder: bool = False) -> bool:
        full = path.parent.resolve() / path.name
        for parent in full.parents:
            include = spec(parent).check_file(full.relative_to(parent).as_posix() + "/" * is_folder).include
            if include is not None or parent == top:
                return bool(include)
        return False

    return ignores


def script_for(source: Input, output_dir: Path, root: Path | None = None) -> Path:
    """Return the path of a notebook's script.

    Args:
        source: the notebook.
        output_dir: the folder for the scripts.
        root: the folder whose tree it mirrors; None means the input's root.

    Raises:
        InputError: the notebook is not below `root`, or a link leads the script out of `output_dir`.
    """
    top = (source.root if root is None else root).absolute()
    notebook = Path(os.path.normpath(source.path.absolute()))
    try:
        inside = notebook.relative_to(os.path.normpath(top))
    except ValueError:
        raise InputError(f"{source.path}: not below {top}, whose tree the output folder mirrors") from None
    script = output_dir / inside.with_name(script_name(source))
    if os.path.normpath(script.absolute()) == str(notebook):
        script = script.with_name(script_beside(source).name)
    if not script.parent.resolve().is_relative_to(output_dir.resolve()):
        raise InputError(f"{script}: a symbolic link leads out of the output folder {output_dir}")
    return script


def script_beside(notebook: Input) -> Path:
    """Return a script's default path: next to its notebook, with `_ddp` if the notebook is a .py file too."""
    is_python = notebook.path.suffix.lower() == ".py"
    return notebook.path.with_name(other_name(notebook.path.stem) if is_python else script_name(notebook))


def script_name(notebook: Input) -> str:
    """Return a script's default name: the notebook's, unless a module has that name."""
    stem = notebook.path.stem
    return other_name(stem) if hidden(stem, _sources_with(notebook.path, stem)) else f"{stem}.py"


def _sources_with(path: Path, name: str) -> list[str]:
    """Return a notebook's code cells if its text mentions a name on a line with an import or an install."""
    text = _text(path) if name.isidentifier() else ""
    same, named = text.replace("-", "_"), rf"\b(?:import|from|install)\b[^\n]*\b{name}\b"
    if name not in same or not re.search(named, same):
        return []
    with suppress(NotebookError):
        return [cell.source for cell in read_notebook(text, name, path.name).cells if cell.kind == "code"]
    return []
