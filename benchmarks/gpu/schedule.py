"""Run tasks side by side, each on GPUs of its own."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Task:
    """Something to do on `gpus` GPUs, once everything it `needs` is there; it then says whether it `makes` that."""

    do: Callable[[list[str]], bool]  # gets the GPUs; True where what it makes is there now
    gpus: int
    needs: frozenset[str] = frozenset()
    makes: str = ""
    seconds: float = 0.0  # not begun when less time than this is left


def run(tasks: Sequence[Task], devices: Sequence[str], seconds: float) -> None:
    """Begin tasks in their order, each as soon as it can be, until time is over; return when the last has ended.

    A task that waits for GPUs holds back those behind it; one that waits for what another makes does not.
    """
    deadline, change = time.monotonic() + seconds, threading.Condition()
    free, there, making = list(devices), set[str](), {task.makes for task in tasks if task.makes}
    waiting, threads = list(tasks), list[threading.Thread]()

    def work(task: Task, taken: list[str]) -> None:
        made = False
        try:
            made = task.do(taken)
        finally:
            with change:
                free[:] = sorted(free + taken)
                making.discard(task.makes)
                if made and task.makes:
                    there.add(task.makes)
                change.notify_all()

    with change:
        while waiting:
            left = deadline - time.monotonic()
            waiting = [task for task in waiting if task.needs <= there | making and task.seconds <= left]
            ready = next((task for task in waiting if task.needs <= there), None)
            if ready is None or ready.gpus > len(set(free)):
                if waiting:
                    change.wait(1)
                continue
            waiting.remove(ready)
            taken = sorted(set(free), key=lambda gpu: (-free.count(gpu), gpu))[: ready.gpus]  # the least busy ones
            for gpu in taken:
                free.remove(gpu)
            threads.append(threading.Thread(target=work, args=(ready, taken)))
            threads[-1].start()
    for thread in threads:
        thread.join()
