"""Find what changed in a notebook since a git commit, and what that changes in its script."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from nb2ddp.notebook.reader import read_notebook
from nb2ddp.project.files import Job, decode, read, unified_diff
from nb2ddp.project.history import at, git
from nb2ddp.project.inputs import InputError
from nb2ddp.results import Change, NotebookError


def commit(name: str) -> str:
    """Return the hash of a commit, as git resolves it in the current folder.

    Raises:
        InputError: git knows no such commit.
    """
    revision = git(Path(), "rev-parse", "--verify", "--quiet", "--end-of-options", f"{name}^{{commit}}")
    if not revision:
        raise InputError(f"--since {name}: git knows no such commit in this folder")
    return revision.decode().strip()


def since(revision: str, job: Job, script: Callable[[bytes], str]) -> Change | None:
    """Return what changed in a job's notebook; None if it is unchanged, new, or unreadable.

    Args:
        revision: a hash of `commit`.
        job: the notebook.
        script: converts a notebook's content; returns None if that fails.
    """
    before = at(revision, job.notebook) if job.is_file else None
    try:
        now = read(job.notebook) if before is not None else b""
        if before is None or before == now:
            return None
        cells = [_cells(job, content) for content in (before, now)]
    except (NotebookError, OSError):
        return None
    notebook = unified_diff(cells[0], cells[1], job.notebook.as_posix())
    return Change(notebook, unified_diff(script(before), script(now), job.script.as_posix())) if notebook else None


def _cells(job: Job, content: bytes) -> str:
    notebook = read_notebook(decode(content), job.name, job.notebook.name)
    return "\n".join(
        f"# %% Cell {cell.number}{'' if cell.kind == 'code' else f' ({cell.kind})'}\n{cell.source}\n"
        for cell in notebook.cells
    )
