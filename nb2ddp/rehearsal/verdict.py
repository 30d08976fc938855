"""The result of a rehearsal: the answers to its questions, the obstacle if there is one, needs, and notes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from nb2ddp.rehearsal.evidence import Both, Code, Place
from nb2ddp.rehearsal.obstacle import in_a_line, obstacle
from nb2ddp.rehearsal.questions import QUESTIONS, State
from nb2ddp.rehearsal.stage import events
from nb2ddp.script.needs import stated

if TYPE_CHECKING:
    from nb2ddp.rehearsal.plan import Plan
    from nb2ddp.rehearsal.run import Run


@dataclass(frozen=True)
class Row:
    """A question, its answer, and the lines that it is about."""

    asked: str
    state: State
    measured: str
    places: tuple[Place, ...] = ()


@dataclass(frozen=True)
class Verdict:
    """The result of a rehearsal.

    Attributes:
        rows: the questions, in the order of the report.
        obstacle: why it could not be rehearsed, or None.
        needs: what the script needs from its surroundings, by kind.
        notes: what was not done, or done by a stand-in.
        origins: the origin of each model, data set and missing file: "hub" or "cache" (it has the configuration,
            tokenizer or rows of the real one), or "stand-in".
        passed: statements that training does not need, and that could not be rehearsed.
    """

    plan: Plan
    alone: Run
    job: Run
    rows: tuple[Row, ...]
    obstacle: Place | None
    needs: dict[str, tuple[str, ...]]
    notes: tuple[str, ...]
    origins: Mapping[str, str] = field(default_factory=dict)
    passed: tuple[Place, ...] = ()

    @property
    def faults(self) -> list[Row]:
        """The questions that show a fault."""
        return [row for row in self.rows if row.state is State.FAULT]

    @property
    def is_of_versions(self) -> bool:
        """Whether the obstacle is something that these versions lack and the notebook's versions may have."""
        return self.obstacle is not None and self.obstacle.code is Code.VERSIONS

    @property
    def has_other_rows(self) -> bool:
        """Whether it is a fault that the processes have other rows than one process."""
        return any(place.code is Code.OTHER_ROWS for row in self.faults for place in row.places)

    @property
    def code(self) -> int:
        """The exit code: 0 ready, 1 a fault, 2 it could not be rehearsed, 3 ready but for what was passed over."""
        return 2 if self.obstacle else 1 if self.faults else 3 if self.passed else 0


def judge(
    plan: Plan,
    alone: Run,
    job: Run,
    loads: Mapping[tuple[str, str], str] | None = None,
    origins: Mapping[str, str] | None = None,
    *,
    again: Run | None = None,
    trust: bool = False,
) -> Verdict:
    """Compare the run of one process with that of several.

    Args:
        plan: the script.
        alone: its run as one process.
        job: its run as several; the same run if the first one did not end.
        loads: requests to the hub ("models" or "datasets", and an id) -> why it could not be made, or "".
        origins: the origin of what was made for them, by id: "hub", "cache" or "stand-in".
        again: a second run as one process, or None.
        trust: whether programs were really started, so that no note says that they were not.
    """
    both = Both(plan, alone, job, again)
    rows = tuple(Row(asked, *answer(both)) for asked, answer in QUESTIONS)
    asked = loads or {}
    reason = obstacle(both, {name: why for (_, name), why in asked.items() if why})
    story = (event for _, rank in both.everyone() for event in rank.events)
    notes = dict.fromkeys(note for event in story for note in _notes(event, plan, trust))
    made = (need.name for _, rank in both.everyone() for need in rank.seen(events.Need) if need.made)
    known = dict(origins or {}) | dict.fromkeys(made, "stand-in")
    # Passed over, although they are not faults of the notebook.
    passed = tuple(Place(each.line, in_a_line(plan, each)) for each in both.one.seen(events.Passed) if not each.own)
    return Verdict(plan, alone, job, rows, reason, _needs(both, asked), tuple(notes), known, passed)


def _needs(both: Both, loads: Iterable[tuple[str, str]]) -> dict[str, tuple[str, ...]]:
    """Return what the script needs from its surroundings, by kind."""
    plan = both.plan
    wanted = defaultdict[str, list[str]](list)
    wanted |= {"GPUs": ["one for each process"], "packages": [*plan.packages]}
    wanted |= {"listed in its first lines": stated(plan.text), "environment variables": [*plan.variables]}
    for kind, name in loads:
        wanted[{"models": "models", "datasets": "data sets"}[kind]].append(name)
    for _, rank in both.everyone():
        for need in rank.seen(events.Need):
            wanted[need.what].append(need.name)
    wanted["files"] += (str(file.relative_to(plan.folder)) for file in plan.files)
    return {kind: tuple(dict.fromkeys(names)) for kind, names in wanted.items() if names}


def _notes(event: events.Event, plan: Plan, trust: bool) -> Iterator[str]:
    """Yield what a stand-in answered, and what was not done."""
    place = plan.place(event.line)
    match event:
        case events.Learnt(what) if what:
            yield f"made rows: {'; '.join(what)}"
        case events.StandIn(name) if "." not in name:
            yield f"{name}: a stand-in ({place})"
        case events.Program(command) if not trust:
            yield f"not run: {command[:100]} ({place})"
        case events.Server(port):
            yield f"port {port} of this machine: a stand-in answers with a digit ({place})"
        case events.Upload(to):
            yield f"not uploaded: {to} ({place})"
        case events.Connect(to) if event.line:
            yield f"not reached: {to} ({place})"
