"""Convert notebooks: source to text, file to file."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import libcst as cst

from nb2ddp.engine import rewrite
from nb2ddp.ipython import PLACEHOLDER
from nb2ddp.launch import launch_files
from nb2ddp.model import Conversion, NotebookError, Options, Result, Status
from nb2ddp.notebook import Notebook, parse_notebook
from nb2ddp.program import Program
from nb2ddp.render import script
from nb2ddp.rules import RULES


def convert_notebook(notebook: Notebook, script_name: str, options: Options | None = None) -> Conversion:
    """Convert a notebook that has been read.

    Args:
        notebook: its cells.
        script_name: the file name of the script, which its launch line and the launch files name.
        options: what to produce; the defaults if None.

    Raises:
        NotebookError: it cannot be converted; the error says where and why.
    """
    options = options or Options()
    program = Program(notebook, options)
    rules = [rule for rule in RULES if rule.code not in options.ignore]
    result = rewrite(program, rules)
    text = script(program, result.cells, result.needs, script_name)
    _check(text)
    return Conversion({script_name: text, **launch_files(options.launch, script_name)}, result.diagnostics)


def convert_source(text: str, name: str, script_name: str, options: Options | None = None) -> Conversion:
    """Convert the text of an .ipynb file; see `convert_notebook`."""
    return convert_notebook(parse_notebook(text, name), script_name, options)


def convert_file(notebook: Path, script: Path, options: Options | None = None) -> Result:
    """Convert a notebook file into a script, with the launch files beside it.

    Files are replaced whole or not at all, and only where their content differs.

    Raises:
        NotebookError: the notebook cannot be converted; nothing is written.
        OSError: a file cannot be read or written.
    """
    try:
        text = notebook.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise NotebookError(f"not a notebook: not UTF-8 ({error.reason} at byte {error.start})") from None
    conversion = convert_source(text, notebook.stem, script.name, options)
    changed = {
        path: content for name, content in conversion.files.items() if _read(path := script.parent / name) != content
    }
    for path, content in changed.items():
        _write(path, content)
    status = Status.CONVERTED if changed else Status.UNCHANGED
    return Result(notebook, script, status, conversion.diagnostics, tuple(changed))


def _check(text: str) -> None:
    """Refuse to hand out a script that is not Python, or that still holds a stand-in."""
    try:
        cst.parse_module(text)
    except cst.ParserSyntaxError as error:
        raise NotebookError(f"internal error: the script would not be Python ({error})", code="DDP000") from None
    if f"{PLACEHOLDER}(" in text:
        raise NotebookError("internal error: IPython syntax is left in the script", code="DDP000")


def _read(path: Path) -> str | None:
    try:
        return path.read_bytes().decode("utf-8")
    except (FileNotFoundError, UnicodeDecodeError):
        return None


def _write(path: Path, content: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content.encode("utf-8"))
        mode = path.stat().st_mode & 0o777 if path.exists() else 0o666 & ~_umask()
        Path(temporary).chmod(mode)
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
