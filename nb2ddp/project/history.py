"""Find what nb2ddp wrote before: the base against which edits are merged.

It is stored in the user's cache folder. If it is not there, converting the notebook, or a version of it that git has,
with the same options and the same version of nb2ddp gives the same bytes again.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from nb2ddp import __version__
from nb2ddp.options import TYPED, LaunchError, OptionsError, typed
from nb2ddp.project.config import ConfigError, settings
from nb2ddp.project.files import STDIN, Job, default_folder, read, replace
from nb2ddp.results import Conversion, NotebookError
from nb2ddp.script import stamp
from nb2ddp.script.stamp import Stamp
from nb2ddp.settings import given

#: Converts a notebook's content for the script of a job, with the job's options or others.
Convert = Callable[..., Conversion]
#: Stored files that are not read for this time, in seconds, are deleted.
LIFETIME = 400 * 24 * 3600
#: The number of versions of a notebook to try, from the newest.
_VERSIONS = 30


def remember(texts: Iterable[str]) -> None:
    """Store files as they are written; do nothing if the folder cannot be written."""
    for text in texts:
        line = stamp.read(text)
        if line is not None:
            with suppress(OSError):
                replace({_kept(line.digest): text.encode()})


def recall(job: Job, convert: Convert, line: Stamp) -> str | None:
    """Return a file as nb2ddp wrote it.

    Args:
        job: the notebook and the script.
        convert: converts a notebook's content for the same script, with other options.
        line: the file's line `convert again:`.

    Returns:
        Its text; None if neither the cache nor git has it.
    """
    with suppress(OSError, UnicodeDecodeError):
        text = _kept(line.digest).read_bytes().decode()
        os.utime(_kept(line.digest))
        if stamp.read(text) == Stamp(line.command, line.version, line.digest, is_intact=True):
            return text
    return next(_made_again(job, convert, line), None) if line.version == __version__ else None


def prune() -> None:
    """Delete stored files that were not read during their lifetime."""
    with suppress(OSError):
        for path in (default_folder() / "written").glob("*/*"):
            if time.time() - path.stat().st_mtime > LIFETIME:
                path.unlink()


def _kept(digest: str) -> Path:
    return default_folder() / "written" / digest[:2] / digest[2:]


def _made_again(job: Job, convert: Convert, line: Stamp) -> Iterator[str]:
    try:
        options = typed(shlex.split(line.command))
    except ValueError:
        return
    own = {key: value for key, value in given(job.options).items() if key not in {each.key for each in TYPED}}
    for content in _versions(job.notebook):
        with suppress(NotebookError, ConfigError, LaunchError, OptionsError):
            for text in convert(job, content, settings({**own, **options}).options).files.values():
                stamped = stamp.read(text)
                if stamped is not None and stamped.digest == line.digest:
                    yield text


def _versions(notebook: Path) -> Iterator[bytes]:
    """Yield the notebook's content: the current one, then those of git, newest first."""
    if notebook == STDIN:
        return
    with suppress(OSError, NotebookError):
        yield read(notebook)
    log = git(notebook.parent, "log", "--format=%H", f"--max-count={_VERSIONS}", "--", notebook.name)
    for revision in (log or b"").decode().split():
        content = git(notebook.parent, "show", f"{revision}:./{notebook.name}")
        if content is not None:
            yield content


def git(folder: Path, *arguments: str) -> bytes | None:
    """Return what git prints in a folder; None if git fails or is missing."""
    try:
        done = subprocess.run(["git", *arguments], cwd=folder, capture_output=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    return done.stdout
