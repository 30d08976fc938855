"""Convert many notebooks on all cores; results come in the order of the notebooks."""

from __future__ import annotations

import gc
import math
import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from functools import partial
from multiprocessing import connection, get_context, parent_process
from pathlib import Path

from nb2ddp.codes import INTERNAL, INTERNAL_MESSAGE, NOT_WRITTEN, UNREADABLE
from nb2ddp.options import LaunchError, Options, OptionsError
from nb2ddp.project import history, outputs
from nb2ddp.project.files import Job, Mode, decode, read, reason
from nb2ddp.results import Conversion, Diagnostic, NotebookError, Result, Status

#: Codes that refuse a notebook in which no Trainer trains; if it was found in a folder, it is skipped.
NO_TRAINER = ("DDP002", "DDP003")
#: The number of notebooks from which it pays to start another process (about one second).
JOBS_A_PROCESS = 4


def run(
    jobs: Sequence[Job],
    mode: Mode = Mode.WRITE,
    *,
    processes: int | None = None,
) -> Iterator[Result]:
    """Convert notebooks. An error in one becomes its result, and the others continue.

    Args:
        jobs: the notebooks, with different scripts.
        mode: what to do with the conversions.
        processes: the largest number at a time; None means the cores that this process may use.

    Yields:
        The results, in the order of the jobs.

    Raises:
        OptionsError: a job's options name an unknown rule; nothing is written.
    """
    from nb2ddp.convert import check_codes  # before a fork: its imports take long

    for options in dict.fromkeys(job.options for job in jobs):
        check_codes(options)
    workers = min(processes or _cores(), math.ceil(len(jobs) / JOBS_A_PROCESS))
    convert = partial(convert_job, mode=mode)
    if workers < 2:
        yield from map(convert, jobs)
    else:
        yield from _in_pool(jobs, convert, workers)
    history.prune()


def convert_job(job: Job, mode: Mode) -> Result:
    """Convert one notebook; an error becomes the result's failure.

    Args:
        job: the notebook.
        mode: what to do with the conversion.
    """
    try:
        return outputs.finish(job, read(job.notebook, job.link), converted, mode)
    except NotebookError as error:
        return _failed(job, *error.diagnostics)
    except (LaunchError, OptionsError) as error:
        failure = UNREADABLE.found(str(error))
    except OSError as error:
        failure = NOT_WRITTEN.found(reason(error))
    except Exception as error:  # the only place: a bug of nb2ddp must not stop the other notebooks
        failure = INTERNAL.found(INTERNAL_MESSAGE.format(f"{type(error).__name__}: {error}"))
    return _failed(job, failure)


def converted(job: Job, source: bytes, options: Options | None = None) -> Conversion:
    """Convert the content of a job's notebook, with the job's options if none are given.

    Raises:
        NotebookError, OptionsError, LaunchError: as for `convert_source`.
    """
    from nb2ddp.convert import convert_source

    chosen = options or job.options
    return convert_source(decode(source), job.name, job.script.name, chosen, job.notebook.name, job.reference)


def _in_pool(jobs: Sequence[Job], convert: Callable[[Job], Result], workers: int) -> Iterator[Result]:
    is_alone = len(list(Path("/proc/self/task").glob("*"))) == 1  # no other thread, whose locks a fork would keep
    context = get_context("fork" if is_alone else "spawn")
    with ProcessPoolExecutor(workers, mp_context=context, initializer=_start_worker) as pool:
        with _without_interrupt():  # this starts the workers
            futures = [pool.submit(convert, job) for job in jobs]
        try:
            for job, future in zip(jobs, futures, strict=True):
                try:
                    yield future.result()
                except BrokenProcessPool:  # by this notebook or by another one
                    yield _failed(job, INTERNAL.found(INTERNAL_MESSAGE.format("a converting process died")))
        finally:  # at Ctrl-C too: running conversions finish, waiting ones do not start
            pool.shutdown(cancel_futures=True)


@contextmanager
def _without_interrupt() -> Iterator[None]:
    """Ignore Ctrl-C; processes that are started meanwhile ignore it until they end."""
    is_main = threading.current_thread() is threading.main_thread()  # only this thread can set handlers
    before = signal.signal(signal.SIGINT, signal.SIG_IGN) if is_main else None
    try:
        yield
    finally:
        if before is not None:
            signal.signal(signal.SIGINT, before)


def _start_worker() -> None:
    """End when the parent ends, even if it is killed."""
    gc.freeze()  # the modules
    gc.enable()
    parent = parent_process()
    if parent is not None:
        sentinel = parent.sentinel
        threading.Thread(target=lambda: (connection.wait([sentinel]), os._exit(1)), daemon=True).start()


def _cores() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _failed(job: Job, *failures: Diagnostic) -> Result:
    is_skipped = failures[0].code in NO_TRAINER and not job.is_named
    return Result(job.notebook, job.script, Status.SKIPPED if is_skipped else Status.FAILED, failures)
