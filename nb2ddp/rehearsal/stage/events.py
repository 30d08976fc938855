"""The kinds of events of a process, which `log` writes and a verdict reads."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

KINDS: dict[str, type[Event]] = {}


@dataclass(frozen=True)
class Event:
    """Something that happened.

    Attributes:
        line: the line of the script, or None.
        helper: whether a process that this one has forked, such as one of a pool, has done it.
    """

    line: int | None = field(default=None, kw_only=True)
    helper: bool = field(default=False, kw_only=True)

    def __init_subclass__(cls) -> None:
        KINDS[cls.__name__] = cls


def read(about: Mapping[str, Any]) -> Event:
    """Return an event from its data in the log: its class as "kind", and its fields."""
    kind = KINDS.get(about["kind"], Event)
    return kind(**{each.name: about[each.name] for each in fields(kind) if each.name in about})


@dataclass(frozen=True)
class Call(Event):
    """A collective call begins."""

    name: str
    size: int | None = None  #: elements of its tensor


@dataclass(frozen=True)
class Called(Event):
    """A collective call has ended."""

    name: str


@dataclass(frozen=True)
class Arguments(Event):
    """Training arguments are made."""

    schedule: dict[str, str]  #: how long the training is, and how far each step goes
    folder: str


@dataclass(frozen=True)
class Train(Event):
    """A training begins."""

    epoch: int | None = None  #: samples of an epoch
    samples: int = 0  #: samples of a step, of all processes
    grouped: bool = False  #: rows are ordered by their length within the batch of each process
    rows: str = ""  #: a name for the data set's first rows


@dataclass(frozen=True)
class Rows(Event):
    """A batch of a training comes: a name for each row."""

    rows: list[str]


@dataclass(frozen=True)
class OtherRows(Event):
    """A batch of an evaluation comes."""

    rows: list[str]


@dataclass(frozen=True)
class Precision(Event):
    """A loss has this precision: the relative distance of two numbers of its type."""

    value: float


@dataclass(frozen=True)
class Reward(Event):
    """A reward is given to completions."""

    name: str
    keys: list[str]  #: names of the completions with their prompts
    values: list[Any]
    wrapped: bool = False  #: whether the script wraps it, to draw the same numbers in all processes
    at: int | None = None  #: the line that defines it


@dataclass(frozen=True)
class Step(Event):
    """A step of a training ends."""


@dataclass(frozen=True)
class Logged(Event):
    """The trainer logs numbers."""

    step: int
    values: dict[str, float]


@dataclass(frozen=True)
class Trained(Event):
    """A training ends."""

    weights: str  #: a name for all that was trained


@dataclass(frozen=True)
class Change(Event):
    """A folder is made, or a file moved away."""

    path: str


@dataclass(frozen=True)
class Write(Change):
    """A file is written."""


@dataclass(frozen=True)
class Remove(Change):
    """A file is removed."""


@dataclass(frozen=True)
class Read(Event):
    """The script reads a file."""

    path: str


@dataclass(frozen=True)
class Need(Event):
    """The script needs something from its surroundings."""

    what: str
    name: str
    made: bool = False  #: whether it was missing, and is made


@dataclass(frozen=True)
class Asked(Event):
    """The script looks for a missing file, and the file is not made."""

    name: str


@dataclass(frozen=True)
class Made(Event):
    """A data set is made."""

    name: str


@dataclass(frozen=True)
class Learnt(Event):
    """A copy of the process goes on with what was learnt, in words."""

    what: list[str]


@dataclass(frozen=True)
class StandIn(Event):
    """A stand-in replaces something that is missing."""

    name: str
    package: bool = False  #: whether it is a package that could be installed


@dataclass(frozen=True)
class Program(Event):
    """A program is started."""

    command: str


@dataclass(frozen=True)
class Clone(Event):
    """A repository is cloned."""

    address: str
    folder: str
    there: bool


@dataclass(frozen=True)
class Connect(Event):
    """The script tries to reach another machine."""

    to: str


@dataclass(frozen=True)
class Server(Event):
    """The rehearsal answers in place of a server that was not started."""

    port: int


@dataclass(frozen=True)
class Serve(Event):
    """The script listens on a port."""

    port: int


@dataclass(frozen=True)
class Upload(Event):
    """Something is sent to the hub."""

    to: str


@dataclass(frozen=True)
class Tracked(Event):
    """A run of a tracker begins."""

    what: str


@dataclass(frozen=True)
class Passed(Event):
    """A statement that training does not need has failed, and is passed over."""

    error: str
    message: str
    after: bool = False  #: whether it is after the last training
    own: bool = False  #: whether it would fail anywhere


@dataclass(frozen=True)
class Left(Event):
    """What still runs at the end of the process: names, and the lines that started them."""

    threads: list[tuple[str, int | None]] = field(default_factory=list)
    programs: list[tuple[str, int | None]] = field(default_factory=list)
    group: bool = False  #: the process group is open


@dataclass(frozen=True)
class End(Event):
    """The script ends, with an exception if there is an `error`.

    Attributes:
        code: the exit code; None if the process has not recorded its end.
        inner: the innermost line of the script; `line` is the outermost.
        error, message: the type and the message of the exception.
        ours: whether the rehearsal has raised it.
        library: the library whose code has raised it, or "".
        rests: the packages on which the failed statement depends.
        raised: whether a `raise`, an `assert` or an exit of the script itself has raised it.
        unknown: what the rehearsal does not know of a library, or "".
        host: another machine that the rehearsal did not let it reach, or "".
        refused: whether the rehearsal did not let it reach another machine, or write outside its folder.
    """

    code: int | None = None
    inner: int | None = None
    error: str = ""
    message: str = ""
    ours: bool = False
    library: str = ""
    rests: list[str] = field(default_factory=list)
    raised: bool = False
    unknown: str = ""
    host: str = ""
    refused: bool = False
