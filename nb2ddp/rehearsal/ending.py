"""End a job before its time and start it again, for scripts written with `--resume`: does the training go on?"""

from __future__ import annotations

import random
import re
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
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
        processes: of the job until then; 0 for as many as at its end.
    """

    signal: str
    event: str
    step: int
    rank: int
    processes: int = 0


def goes_on(plan: Plan, steps: int) -> bool:
    """True for a script that saves its training and goes on with it, and a training that can be ended twice."""
    return bool(_OFTEN.search(plan.text)) and steps >= _LEAST


def ends(plan: Plan, steps: int, processes: int) -> tuple[End, ...]:
    """Kills of one process, of all, and in a save, and then a call to end, at steps that follow from the script."""
    draw = random.Random(zlib.crc32(plan.text.encode()))
    one = draw.randrange(processes)
    kills = [("step", one), ("step", -1), ("saved", draw.choice([one, -1]))]
    draw.shuffle(kills)
    *at, last = sorted(draw.choices(range(2, steps), k=4))
    told = End("SIGTERM", "step", last, -1)  # the last: the next start begins after its step
    return *(End("SIGKILL", event, step, rank) for step, (event, rank) in zip(at, kills, strict=True)), told


def started_again(
    plan: Plan,
    planned: Sequence[End],
    root: Path,
    start: Callable[[Plan, Path, str, Mapping[str, object], int], Run],
) -> Iterator[tuple[str, Run]]:
    """The runs of a job that is ended early, each behind its signal, in one folder: the last is to reach its end.

    Args:
        plan: the script.
        planned: how each start of it ends, but for the last.
        root: a folder below which the runs lie.
        start: runs a script in a folder, with what to call it, more settings, and as so many processes.
    """
    often = replace(plan, text=_OFTEN.sub("0", plan.text))
    before: Path | None = None
    for number, end in enumerate((*planned, None), start=1):
        folder = root / f"start-{number}"
        if before is not None:
            folder.mkdir()
            (before / "work").rename(folder / "work")
        name, more = f"start {number} of {len(planned) + 1}", {"end": asdict(end) if end else None}
        yield end.signal if end else "", start(often, folder, name, more, end.processes if end else 0)
        before = folder
