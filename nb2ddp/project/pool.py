"""Convert many notebooks on all cores; results come in the order of the notebooks."""

from __future__ import annotations

import math
import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import replace
from enum import Enum
from functools import partial
from multiprocessing import connection, get_context, parent_process

from nb2ddp.codes import INTERNAL, INTERNAL_SAID, NOT_WRITTEN, UNREADABLE
from nb2ddp.options import LaunchError, Options, OptionsError
from nb2ddp.project import history, outputs
from nb2ddp.project.files import Job, content, decode, reason
from nb2ddp.results import Conversion, Diagnostic, NotebookError, Result, Severity, Status

#: What refuses a notebook in which no Trainer trains, and how much that asks of a reader where a folder holds it.
NO_TRAINER = {"DDP002": Severity.NOTE, "DDP003": Severity.WARNING}
#: Fewer notebooks than this for each process do not repay starting it (about one second).
JOBS_A_PROCESS = 4


class Mode(Enum):
    """What to do with a conversion."""

    WRITE = "write"
    CHECK = "check"  #: write nothing; say what is stale
    DIFF = "diff"  #: write nothing; the result's text is what would change in the files
    REWRITES = "rewrites"  #: write nothing; the result's text is the difference to the notebook's own code
    TEXT = "text"  #: write nothing; the result's text is the script


_DO = {Mode.WRITE: outputs.write, Mode.CHECK: outputs.check, Mode.DIFF: outputs.difference}


def run(
    jobs: Sequence[Job],
    mode: Mode = Mode.WRITE,
    *,
    processes: int | None = None,
    done: Callable[[], None] = lambda: None,
) -> Iterator[Result]:
    """Convert notebooks. An error of one is its result, and the others go on.

    Args:
        jobs: the notebooks, with different scripts.
        mode: what to do with the conversions.
        processes: the largest number at a time; None means the cores that this process may use.
        done: called in this process after each notebook, as they end.

    Yields:
        The results, in the order of the jobs.

    Raises:
        OptionsError: a job's options name an unknown rule; nothing is written.
    """
    if any(job.options.select or job.options.ignore for job in jobs):
        from nb2ddp.convert import check_codes

        for options in dict.fromkeys(job.options for job in jobs):
            check_codes(options)
    workers = min(processes or _cores(), math.ceil(len(jobs) / JOBS_A_PROCESS))
    convert = partial(convert_job, mode=mode)
    yield from _in_turn(jobs, convert, done) if workers < 2 else _in_pool(jobs, convert, workers, done)
    history.store().prune()


def convert_job(job: Job, mode: Mode) -> Result:
    """Convert one notebook; an error becomes the result's failure.

    Args:
        job: the notebook.
        mode: what to do with the conversion.
    """
    try:
        if mode not in _DO:
            return _as_text(job, mode)
        return _DO[mode](job, converted(job, content(job), job.options), recalling(job))
    except NotebookError as error:
        return _failed(job, *error.diagnostics)
    except (LaunchError, OptionsError) as error:
        failure = UNREADABLE.found(str(error))
    except OSError as error:
        failure = NOT_WRITTEN.found(reason(error))
    except Exception as error:  # the one place: a fault of ours keeps no other notebook from being converted
        failure = INTERNAL.found(INTERNAL_SAID.format(f"{type(error).__name__}: {error}"))
    return _failed(job, failure)


def converted(job: Job, source: bytes, options: Options) -> Conversion:
    """Convert the content of a job's notebook, with the job's options or others.

    Raises:
        NotebookError, OptionsError, LaunchError: as of `convert_source`.
    """
    from nb2ddp.convert import convert_source

    return convert_source(decode(source), job.name, job.script.name, options, job.notebook.name, job.reference)


def script_of(job: Job, source: bytes) -> str:
    """Return the script of a notebook's content; empty if it cannot be converted."""
    try:
        return converted(job, source, job.options).files.get(job.script.name, "")
    except (NotebookError, LaunchError, OptionsError):
        return ""


def recalling(job: Job) -> outputs.Recall:
    """Return a function that returns the files that earlier conversions of a job wrote."""
    return partial(history.recall, job.notebook, partial(converted, job))


def _as_text(job: Job, mode: Mode) -> Result:
    source = content(job)
    if mode is Mode.REWRITES:
        from nb2ddp.convert import rewrites

        conversion, text = rewrites(decode(source), job.name, job.script.name, job.options, job.notebook.name)
        return Result(job.notebook, job.script, Status.UNCHANGED, conversion.diagnostics, text=text)
    conversion = converted(job, source, job.options)
    text = conversion.files[job.script.name]
    return Result(job.notebook, job.script, Status.CONVERTED, conversion.diagnostics, text=text)


def _in_turn(jobs: Sequence[Job], convert: Callable[[Job], Result], done: Callable[[], None]) -> Iterator[Result]:
    for job in jobs:
        result = convert(job)
        done()
        yield result


def _in_pool(
    jobs: Sequence[Job], convert: Callable[[Job], Result], workers: int, done: Callable[[], None]
) -> Iterator[Result]:
    pool = ProcessPoolExecutor(workers, mp_context=get_context("spawn"), initializer=_start_worker)
    try:
        with _without_interrupt():  # this starts the workers
            futures: list[Future[Result]] = [pool.submit(convert, job) for job in jobs]
        for future in futures:
            future.add_done_callback(lambda _: done())
        for job, future in zip(jobs, futures, strict=True):
            try:
                yield future.result()
            except BrokenProcessPool:  # some notebook ended its process: find out whether it was this one
                yield _alone(job, convert)
    finally:  # on Ctrl-C too: what runs is finished, what waits is not begun
        pool.shutdown(cancel_futures=True)


def _alone(job: Job, convert: Callable[[Job], Result]) -> Result:
    with ProcessPoolExecutor(1, mp_context=get_context("spawn"), initializer=_start_worker) as pool:
        try:
            return pool.submit(convert, job).result()
        except BrokenProcessPool:
            return _failed(job, INTERNAL.found(INTERNAL_SAID.format("the converting process died")))


@contextmanager
def _without_interrupt() -> Iterator[None]:
    """Hold back Ctrl-C, so that a process started meanwhile is not interrupted during its imports."""
    if not hasattr(signal, "pthread_sigmask"):  # Windows
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _start_worker() -> None:
    """Ignore Ctrl-C, and end when the parent ends, even if it is killed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = parent_process()
    if parent is not None:
        sentinel = parent.sentinel
        threading.Thread(target=lambda: (connection.wait([sentinel]), os._exit(1)), daemon=True).start()


def _cores() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _failed(job: Job, *failures: Diagnostic) -> Result:
    first = failures[0]
    if first.code in NO_TRAINER and not job.is_named:
        found = replace(first, severity=NO_TRAINER[first.code])
        return Result(job.notebook, job.script, Status.SKIPPED, (found,))
    return Result(job.notebook, job.script, Status.FAILED, failures)
