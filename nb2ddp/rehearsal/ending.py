"""End a job before its time and start it again, for scripts written with `--resume`: does the training go on?"""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from nb2ddp.rehearsal.plan import Plan
from nb2ddp.rehearsal.run import Run

#: In the setup block of a script that goes on: how often it saves itself, in seconds.
_OFTEN = re.compile(r"(?<=save_by_time\(trainer, training, )60 \* minutes(?=\))")
#: Steps of a training that can be ended twice.
_LEAST = 3


@dataclass(frozen=True)
class End:
    """An end that comes too early.

    Attributes:
        signal: "SIGKILL" or "SIGTERM".
        event: "step" (at its end) or "saved" (a checkpoint is written, and not yet marked as whole).
        step: of the first training.
        rank: whose process gets it; -1 for all.
    """

    signal: str
    event: str
    step: int
    rank: int


def goes_on(plan: Plan, steps: int) -> bool:
    """True for a script that saves its training and goes on with it, and a training that can be ended twice."""
    return bool(_OFTEN.search(plan.text)) and steps >= _LEAST


def ends(plan: Plan, steps: int, processes: int) -> tuple[End, End]:
    """A kill and a call to end, at a step that follows from the script's text."""
    seed = zlib.crc32(plan.text.encode())
    step = 2 + seed % (steps - 2)
    kill = End("SIGKILL", ("step", "saved")[seed // 7 % 2], step, (-1, *range(processes))[seed // 14 % (processes + 1)])
    return kill, End("SIGTERM", "step", step, -1)


def started_again(
    plan: Plan,
    steps: int,
    processes: int,
    root: Path,
    start: Callable[[Plan, Path, str, dict[str, object]], Run],
) -> Iterator[Run]:
    """The runs of a job that is ended twice, in one working folder: the last is to reach its end.

    Args:
        plan: the script.
        steps: of each training.
        processes: of the job.
        root: a folder below which the runs lie.
        start: runs a script in a folder, with what to call it and more settings.
    """
    often = replace(plan, text=_OFTEN.sub("0", plan.text))
    before: Path | None = None
    for number, end in enumerate((*ends(plan, steps, processes), None), start=1):
        folder = root / f"start-{number}"
        if before is not None:
            folder.mkdir()
            (before / "work").rename(folder / "work")
        yield start(often, folder, f"start {number} of 3", {"end": asdict(end) if end else None})
        before = folder
