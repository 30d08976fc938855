"""Read the events of a rehearsal's processes: the two runs to compare, and how far each process came."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum, auto
from typing import TYPE_CHECKING

from nb2ddp.rehearsal.stage.events import Call, Called, End, Event, Train, Trained

if TYPE_CHECKING:
    from nb2ddp.rehearsal.plan import Plan
    from nb2ddp.rehearsal.run import Rank, Run


class Code(Enum):
    """What a place shows, if a decision depends on it."""

    VERSIONS = auto()  #: the versions that the notebook asks for may have what is missing
    UNEVEN = auto()  #: the number of processes does not divide the samples of a step
    OTHER_ROWS = auto()  #: as many rows as in one process, but different ones
    AFTER_ANOTHER = auto()  #: this process failed because another one did


@dataclass(frozen=True)
class Place:
    """A line of the script that an answer refers to, and the message about it."""

    line: int | None
    text: str
    code: Code | None = None


@dataclass(frozen=True)
class Both:
    """The two runs that the answers compare, and a second run of one process if their rows differ."""

    plan: Plan
    alone: Run
    job: Run
    again: Run | None = None

    @property
    def one(self) -> Rank:
        """The process of the first run."""
        return self.alone.ranks[0]

    @property
    def ended(self) -> bool:
        """Whether every process of both runs has reached its end."""
        return not (self.alone.failed or self.job.failed)

    def everyone(self) -> Iterator[tuple[str, Rank]]:
        """Yield every process, with a name."""
        yield "one process", self.one
        if self.job is not self.alone:
            yield from ((f"rank {number}", rank) for number, rank in enumerate(self.job.ranks))


def end_of(rank: Rank) -> End:
    """Return how the script ended in a process; without a code if the process did not record its end."""
    return next(rank.seen(End), End())


def last_line(rank: Rank) -> int | None:
    """Return the line of the last event of a process that has a line, or None."""
    return next((event.line for event in reversed(rank.events) if event.line), None)


def trainings(rank: Rank) -> list[list[Event]]:
    """Return the events of each training, from its begin to its end, or to the last event of the process."""
    found: list[list[Event]] = []
    for event in rank.events:
        if isinstance(event, Train):
            found.append([event])
        elif found and not isinstance(found[-1][-1], Trained):
            found[-1].append(event)
    return found


def waiting(plan: Plan, run: Run) -> Iterator[Place]:
    """Yield where each process of a stopped run was."""
    for number, rank in enumerate(run.ranks):
        open_calls: list[Call] = []
        for event in rank.events:
            if isinstance(event, Call):
                open_calls.append(event)
            elif isinstance(event, Called):
                open_calls = open_calls[:-1]
        if rank.code is not None:
            yield Place(end_of(rank).line, f"rank {number} has ended with code {rank.code}")
        elif open_calls:
            yield Place(open_calls[-1].line, f"rank {number} waits in {open_calls[-1].name}")
        else:
            threads = rank.stack.split("\n\n")
            main = next((each for each in threads if f'{plan.name}"' in each), "")
            lines = re.findall(rf'{re.escape(plan.name)}", line (\d+)', main)
            calls = re.findall(r'File ".*", line \d+ in (\w+)', main)
            yield Place(
                int(lines[0]) if lines else None, f"rank {number} is in {calls[0] if calls else 'an unknown call'}"
            )
