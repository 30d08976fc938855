"""Write the pages that options name. A file that nb2ddp did not write stays, unless --force is given."""

from __future__ import annotations

import errno
import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import ClassVar, Final

from nb2ddp import __version__
from nb2ddp.codes import FOREIGN, NOT_WRITTEN
from nb2ddp.project import files
from nb2ddp.project.files import Job, check_target, identities, reason, text_of
from nb2ddp.project.inputs import InputError
from nb2ddp.results import Diagnostic
from nb2ddp.script.launch import CONFIG_NAME, LAUNCHING, side_file
from nb2ddp.script.packages import GROUPS, file_name

_DOCTYPE: Final = "<!doctype html>\n"
_SIGNED: Final = re.compile(rf"{_DOCTYPE}<!-- nb2ddp \S+, sha256:(?P<digest>[0-9a-f]{{16}}) -->\n", re.IGNORECASE)


@dataclass(frozen=True)
class Page:
    """A file that an option names.

    Attributes:
        path: the file.
        force: replace a file that nb2ddp did not write.
    """

    path: Path
    force: bool = False
    option: ClassVar[str]  #: as it is typed
    what: ClassVar[str]  #: that the option writes

    def refusal(self) -> Diagnostic | None:
        """Return why the file cannot be written, as far as known beforehand; None if it can."""
        try:
            check_target(self.path)
            _check_folder(self.path.parent)
            before = text_of(self.path)
        except OSError as error:
            return NOT_WRITTEN.found(f"{self.option}: {reason(error)}")
        if not before or self.force or self._is_ours(before):
            return None
        return FOREIGN.found(
            f"{self.option} {self.path}: the file exists and is not a {self.what} of nb2ddp: name another, or "
            "replace it with --force"
        )

    def write(self, text: str) -> Diagnostic | None:
        """Write the file; return the reason if that fails, else None."""
        refusal = self.refusal()
        try:
            if refusal is None:
                self._put(text)
        except OSError as error:
            return NOT_WRITTEN.found(f"{self.option}: {reason(error)}")
        return refusal

    def _is_ours(self, before: str) -> bool:
        """True if nb2ddp wrote this text."""
        raise NotImplementedError

    def _put(self, text: str) -> None:
        files.replace({self.path: text.encode()})


class Report(Page):
    """A page of HTML. Its second line holds a checksum, by which an unchanged one is known and replaced."""

    option = "--report"
    what = "page"

    def _is_ours(self, before: str) -> bool:
        signed = _SIGNED.match(before)
        return signed is not None and signed["digest"] == _digest(before[signed.end() :])

    def _put(self, text: str) -> None:
        body = text.lstrip()[len(_DOCTYPE) :]
        signature = f"<!-- nb2ddp {__version__}, sha256:{_digest(body)} -->\n"
        super()._put(f"{_DOCTYPE}{signature}{body}")


class Sarif(Page):
    """The findings, as code scanning reads them. A whole document that names nb2ddp as its only tool is replaced."""

    option = "--sarif-file"
    what = "list of findings"

    def _is_ours(self, before: str) -> bool:
        try:
            return {run["tool"]["driver"]["name"] for run in json.loads(before)["runs"]} == {"nb2ddp"}
        except (ValueError, TypeError, KeyError, RecursionError):
            return False


class Summary(Page):
    """A page of Markdown, added to the end of the file that holds others of them, or that GitHub shows for a job.

    https://docs.github.com/actions/reference/workflows-and-actions/workflow-commands#adding-a-job-summary
    """

    option = "--summary-file"
    what = "summary"
    _begin = re.compile(r"## nb2ddp\n\n\d+ notebooks?: ")

    def refusal(self) -> Diagnostic | None:
        """As for any page, but accept a device such as /dev/null, which has no content to lose."""
        return None if self.path.is_char_device() else super().refusal()

    def _is_ours(self, before: str) -> bool:
        shown = os.environ.get("GITHUB_STEP_SUMMARY")
        return bool(self._begin.match(before) or (shown and identities(Path(shown)) & identities(self.path)))

    def _put(self, text: str) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("ab", buffering=0) as file:  # in its place: a shell may hold it open, to add more
            size = file.tell()
            content = text.encode("utf-8", "backslashreplace")
            try:
                if file.write(content) < len(content):
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self.path))
            except OSError:
                file.truncate(size)
                raise


def check_pages(pages: Sequence[Page], taken: Mapping[Path, str]) -> None:
    """Refuse a page that would replace a file that the run reads or writes.

    Args:
        pages: the pages to write.
        taken: files, and what each of them is.

    Raises:
        InputError: names the page and the file.
    """
    known = {name: what for path, what in taken.items() for name in identities(path)}
    for page in pages:
        names = identities(page.path)
        if found := next((known[name] for name in names if name in known), None):
            raise InputError(f"{page.option} {page.path}: that is {found}; name another file")
        known.update(dict.fromkeys(names, f"the {page.what} of {page.option}"))


def files_of(jobs: Sequence[Job]) -> dict[Path, str]:
    """Return the files that conversions read and write, each with its description."""
    taken = {path: f"a file of the script {job.script}" for job in jobs for path in beside(job.script)}
    taken |= {job.script: "the script" for job in jobs}
    return taken | {job.notebook: "the notebook" for job in jobs if job.is_file}


def beside(script: Path) -> list[Path]:
    """Return all files that any options write beside a script."""
    packages = [file_name(script.name, group) for group in GROUPS]
    launches = [side_file(script.name, suffix) for suffix in ("sbatch", "torchrun.sh")]
    return [script.parent / name for name in (CONFIG_NAME, *launches, f"{script.stem}{LAUNCHING}", *packages)]


def _check_folder(folder: Path) -> None:
    """Refuse a folder in which no file can be created; a missing folder is created later.

    Raises:
        OSError: what is in the way.
    """
    there = next(each for each in (folder, *folder.absolute().parents) if each.exists() or each.is_symlink())
    if not there.is_dir():
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(there))
    if not os.access(there, os.W_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(there))


def _digest(text: str) -> str:
    return sha256(text.encode("utf-8", "surrogateescape")).hexdigest()[:16]
