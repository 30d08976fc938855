"""Decide what happens to each file of a conversion, and write the files without losing an edit.

A file that is as nb2ddp wrote it is replaced. A file that was edited since is merged. A file that nb2ddp did not write,
or whose edits conflict with changes of the notebook, is left alone, with all other files of that conversion.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from nb2ddp.codes import CONFLICT, EDITED, FOREIGN, HIDDEN, OTHER_SETTINGS, REMEMBERED, STALE
from nb2ddp.project import files, history, inputs
from nb2ddp.project.files import Job, Mode
from nb2ddp.project.history import Convert
from nb2ddp.project.links import is_link
from nb2ddp.project.merge import Conflict, merge
from nb2ddp.results import Conversion, Diagnostic, NotebookError, Result, Severity, Status
from nb2ddp.script import stamp
from nb2ddp.script.launch import CONFIG_NAME
from nb2ddp.script.modules import hidden, hiding


@dataclass(frozen=True)
class Output:
    """One file: its current text and its new text."""

    path: Path
    before: str  #: empty where there is none
    after: str
    is_edited: bool = False
    refusal: Diagnostic | None = None  #: why it is left alone
    conflicts: tuple[Conflict, ...] = ()

    @property
    def differs(self) -> bool:
        """True if the file must be written."""
        return self.before != self.after

    @property
    def diff(self) -> str:
        """The change as a unified diff, with a line end after each line."""
        name = self.path.as_posix()
        texts = self.before.splitlines(), self.after.splitlines()
        lines = difflib.unified_diff(*texts, name if self.before else "/dev/null", name, lineterm="")
        return "".join(f"{line}\n" for line in lines)


def settle(job: Job, path: Path, converted: str, convert: Convert) -> Output:
    """Decide what happens to one file.

    Args:
        job: the notebook that is converted.
        path: the file.
        converted: the text of the new conversion.
        convert: converts a notebook for the script.

    Raises:
        OSError: the file cannot be read.
    """
    before = files.text_of(path)
    line, forced = stamp.read(before), job.keep == "nothing"
    unchanged = Output(path, before, before)
    if before and job.is_file and files.identities(path) & files.identities(job.notebook):
        return replace(unchanged, refusal=FOREIGN.found(_INPUT.format(path)))
    if line and not forced and is_of_another(job, line.notebook):
        return replace(unchanged, refusal=FOREIGN.found(_ANOTHER.format(path, line.notebook, job.notebook)))
    if not before.strip() or forced or before == converted or (line and line.is_intact):
        return Output(path, before, converted)
    if line is None:
        return replace(unchanged, refusal=FOREIGN.found(_FOREIGN.format(path)))
    new_line = stamp.read(converted)
    if new_line and new_line.digest == line.digest:  # only the person's edits are new
        return replace(unchanged, is_edited=True)
    return _merged(replace(unchanged, is_edited=True), converted, history.recall(job, convert, line), job.keep)


_FOREIGN = (
    "{} was not written by nb2ddp (it has no line `convert again:`): move it, give the script another folder, or "
    "replace it with --keep nothing"
)
_INPUT = "{} is the notebook itself: give the script another name or folder"
_ANOTHER = (
    "{} was converted from another notebook, {} (see its line `convert again:`), not from {}: choose another name, or"
    " replace it and any edits in it with --keep nothing"
)
_HIDING = "{}: Python imports it in place of {}, in {} and in all scripts of this folder: rename it"
_UNKNOWN = (
    "{} was edited by hand, and the version that nb2ddp wrote is neither in this machine's cache folder nor in git."
    " Convert on the machine that wrote it, or to another name and copy your edits; --keep mine leaves the file as it"
    " is, --keep new replaces it"
)
_CONFLICT = (
    "{}: the new lines conflict with your edits ({}), so nothing is written. --keep mine takes your lines there,"
    " --keep new the notebook's; or copy the new lines into the file, beside yours if both can stay, and convert again"
)


def _merged(edited: Output, converted: str, base: str | None, side: str) -> Output:
    """Return an edited file with the new conversion merged into it, or with the reason why it cannot be merged.

    Args:
        edited: the file as it is.
        converted: the text of the new conversion.
        base: the text that nb2ddp wrote there; None if unknown.
        side: whose lines to take in a conflict: `mine`, `new`, or "" for neither.
    """
    path, before = edited.path, edited.before
    if base is None and side == "new":
        return Output(path, before, converted)
    if base is None and side == "mine":  # every difference counts as an edit from now on
        return replace(edited, after=stamp.copy(converted, stamp.unsigned(before)))
    if base is None:
        return replace(edited, refusal=CONFLICT.found(_UNKNOWN.format(path)))
    merged = merge(base, before, converted, side)
    if merged.conflicts:
        places = (f"line {each.line}{f', cell {each.cell}' if each.cell else ''}" for each in merged.conflicts)
        refusal = CONFLICT.found(_CONFLICT.format(path, "; ".join(places)))
        return replace(edited, refusal=refusal, conflicts=merged.conflicts)
    return Output(path, before, merged.text, is_edited=merged.text != converted)


def outputs_of(job: Job, conversion: Conversion, convert: Convert) -> list[Output]:
    """Return what happens to each file of a conversion, the script last."""
    folder = job.script.parent
    # The launch files come first, so that a written script has all files that its first lines name.
    return [settle(job, folder / name, text, convert) for name, text in reversed(conversion.files.items())]


def is_of_another(job: Job, named: str) -> bool:
    """True if a file's line names another notebook that still exists (else it was moved or renamed).

    Args:
        job: the notebook to convert.
        named: the notebook in the line, as a path from the script's folder.
    """
    if named in (job.reference, *stamp.NO_NOTEBOOK):
        return False
    if is_link(named) or not job.is_file:
        return inputs.named(named).path.stem != job.notebook.stem
    there = job.script.parent / named
    return there.exists() and not files.identities(there) & files.identities(job.notebook)


def finish(job: Job, source: bytes, convert: Convert, mode: Mode) -> Result:
    """Convert a notebook, and write the files that differ; or write nothing, and report what would change.

    Args:
        job: the notebook and the script.
        source: the notebook's content.
        convert: converts a notebook for the script.
        mode: what to do with the conversion.

    Raises:
        NotebookError, OptionsError, LaunchError: as for `convert_source`.
        OSError: a file cannot be read or written; none has changed.
    """
    conversion = convert(job, source)
    if mode is Mode.TEXT:
        text = conversion.files[job.script.name]
        return Result(job.notebook, job.script, Status.CONVERTED, conversion.diagnostics, text=text)
    is_written = mode is Mode.WRITE
    if is_written:
        history.remember(conversion.files.values())
        for name in conversion.files:
            files.check_target(job.script.parent / name)
    outputs = outputs_of(job, conversion, convert)
    if failure := refused(job, outputs):
        return failure
    differing = [output for output in outputs if output.differs]
    if is_written:
        files.replace({output.path: output.after.encode("utf-8", "surrogateescape") for output in differing})
    changed = Status.CONVERTED if is_written else Status.STALE
    names = tuple(output.path for output in reversed(differing))
    merged = tuple(output.path for output in differing if is_written and output.is_edited)
    text = "" if is_written else "".join(output.diff for output in reversed(differing))
    needs = conversion.needs if is_written else ()
    findings = list(doubts(job, outputs)) if mode is not Mode.DIFF else []
    if mode is Mode.CHECK:
        findings = [*_stale(job, names), *findings]
        for output in reversed(outputs):
            if output.is_edited:
                message = f"{output.path} was edited by hand; converting again keeps the edits"
                findings.append(EDITED.found(message, Severity.WARNING))
    status = changed if differing else Status.UNCHANGED
    diagnostics = (*findings, *conversion.diagnostics)
    return Result(job.notebook, job.script, status, diagnostics, names, merged, text, needs, conversion.trainings)


def texts(job: Job, conversion: Conversion, convert: Convert) -> dict[str, str]:
    """Return the text of each file by its name, with a person's edits, for callers that write the files themselves.

    Raises:
        NotebookError: an existing file must not be replaced.
        OSError: a file cannot be read.
    """
    history.remember(conversion.files.values())
    outputs = outputs_of(job, conversion, convert)
    if failure := refused(job, outputs):
        raise NotebookError.of(failure.diagnostics)
    return {output.path.name: output.after for output in outputs}


def refused(job: Job, outputs: list[Output]) -> Result | None:
    """Return why nothing is written, with both sides of a conflict; None if all files can be written."""
    refusals = tuple(output.refusal for output in reversed(outputs) if output.refusal)
    shown = "".join(f"{conflict.text}\n" for output in reversed(outputs) for conflict in output.conflicts)
    return Result(job.notebook, job.script, Status.FAILED, refusals, text=shown) if refusals else None


def _stale(job: Job, paths: Sequence[Path]) -> Iterator[Diagnostic]:
    if paths and job.script.exists():
        names = " and ".join(map(str, paths))
        yield STALE.found(f"{names} {'are' if len(paths) > 1 else 'is'} out of date: convert again")
    elif paths:
        yield STALE.found(f"{job.script} does not exist: convert")


def doubts(job: Job, outputs: list[Output]) -> Iterator[Diagnostic]:
    """Return findings about options, files that hide a module, and launch settings of several scripts."""
    yield from (REMEMBERED.found(f"{job.script}: {note}", Severity.NOTE) for note in job.notes)
    for path in hiding(job.script.parent):
        what = hidden(path.stem if path.name != "__init__.py" else path.parent.name)
        yield HIDDEN.found(_HIDING.format(path, what, job.script.name), Severity.WARNING)
    for output in outputs:
        if output.path.name == CONFIG_NAME:
            yield from _settings_of_others(job, output)


def _settings_of_others(job: Job, config: Output) -> Iterator[Diagnostic]:
    """Warn if a launch file changes that other scripts of its folder use too."""
    if config.before and config.differs:
        others = [path.name for path in sorted(config.path.parent.glob("*.py")) if path.name != job.script.name]
        others = [name for name in others if stamp.read(files.text_of(config.path.with_name(name)))]
        old, new = _keys(config.before), _keys(config.after)
        changes = [
            f"{key} is {new.get(key, 'unset')}, was {value}" for key, value in old.items() if new.get(key) != value
        ]
        if others and changes:
            message = f"{config.path}: now {', '.join(changes)}, for {', '.join(others)} too; the old options undo this"
            yield OTHER_SETTINGS.found(message, Severity.WARNING)


def _keys(text: str) -> dict[str, str]:
    lines = (line.partition(": ") for line in text.splitlines() if not line.startswith("#"))
    return {key: value.partition(" #")[0].strip() for key, _, value in lines}
