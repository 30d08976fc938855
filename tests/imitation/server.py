"""Starts the processes of jobs, and lets them take turns. They are forked from its own, and so start at once.

Reads jobs from standard input, one line of JSON each, and writes what became of them to standard output.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import sys
import tempfile
import time
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from tests.imitation import training  # noqa: F401 # so that each process has it
from tests.imitation.process import SCRIPT, SECONDS, run


def start(rank: int, world: int, folder: Path, cells: list[str]) -> tuple[int, Connection]:
    here, there = Pipe()
    child = os.fork()
    if child:
        there.close()
        return child, here
    try:
        os.setpgid(0, 0)
        here.close()
        run(rank, world, folder, cells, there)
    except BaseException as error:
        there.send({"end": ("Imitation", f"{type(error).__name__}: {error}", 0, 0), "notes": [], "shown": ""})
    os._exit(1)


def job(cells: list[str], world: int) -> dict[str, Any]:
    """Execute a script on `world` processes. Between two joint calls the last one goes first, rank 0 last."""
    folder = Path(tempfile.mkdtemp(prefix="imitation-")).resolve()
    if len(cells) == 1:
        (folder / SCRIPT).write_text(cells[0], encoding="utf-8")
    children = [start(rank, world, folder, cells) for rank in range(world)]
    try:
        return turns([line for _, line in children])
    finally:
        for child, line in children:
            line.close()
            for kill in (os.kill, os.killpg):
                with contextlib.suppress(ProcessLookupError):
                    kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
        shutil.rmtree(folder, ignore_errors=True)


def turns(lines: list[Connection]) -> dict[str, Any]:
    """Let processes run one after the other, each up to its next joint call, until all have ended."""
    joint: list[list[dict[str, Any]]] = []
    replies: dict[int, Any] = dict.fromkeys(range(len(lines)))
    ends: dict[int, dict[str, Any]] = {}
    while len(ends) < len(lines):
        calls: dict[int, dict[str, Any]] = {}
        for rank in sorted(replies, reverse=True):
            lines[rank].send(replies[rank])
            message = receive(lines[rank])
            (ends if "end" in message else calls)[rank] = message
        if calls:
            joint.append([{"rank": rank, **calls[rank]} for rank in sorted(calls)])
        alike = len({call["joint"] for call in calls.values()}) <= 1 and len(calls) in (0, len(lines))
        values = [call.pop("value") for _, call in sorted(calls.items())]
        replies = {rank: values if alike else [values[n]] for n, rank in enumerate(sorted(calls))}
        for call in joint[-1] if calls else []:
            call.pop("value", None)
    return {"joint": joint, "ends": [ends[rank] for rank in range(len(lines))]}


def receive(line: Connection) -> dict[str, Any]:
    deadline = time.monotonic() + 12 * SECONDS
    try:
        while time.monotonic() < deadline:
            if line.poll(1):
                return dict(line.recv())
        return {"end": ("TimeLimit", "waits for ever", 0, 0), "notes": [], "shown": ""}
    except EOFError:
        return {"end": ("Died", "the process died", 0, 0), "notes": [], "shown": ""}


def main() -> None:
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    for text in sys.stdin:
        answers.write(json.dumps(job(**json.loads(text))) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
