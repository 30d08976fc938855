"""What a rehearsal has shown: one run of one process, one of several, and the questions that they answer."""

from __future__ import annotations

import math
import re
import signal
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from itertools import zip_longest
from pathlib import Path, PurePosixPath
from typing import Any

from nb2ddp.rehearsal.plan import Plan
from nb2ddp.rehearsal.run import Rank, Run
from nb2ddp.script.needs import stated

Event = dict[str, Any]
#: Losses of equal rows differ by rounding alone: seen below 9e-5 in float32, below 2e-3 with weights in 16 bits. A loss
#: that is itself in 16 bits (sentence-transformers 5.7) may be the next number but one.
_LOSS, _NORM = 5e-3, 0.05
#: How far the losses of a training that was ended and went on may be from those of one that nobody ended.
_SAME = 1e-6
#: What no process writes for the user: caches, and states that each process keeps for itself under its own name.
_OWN = re.compile(
    r"(^|/)(unsloth_compiled_cache|__pycache__|\.cache|\.locks|runs|(models|datasets|spaces)--[^/]+)/|"
    r"\.lock$|\.tmp|\.incomplete$|/tmp\w*$|rng_state_\d+"
)
_ENDLESS = re.compile(
    r"\b(nvidia-smi|rocm-smi)\b.*\s(-l|--loop|-lms)\b|^\s*watch\s|\btail\s+(-f|-F|--follow)|\bwhile\s+(true|:)|"
    r"^\s*(top|htop|nvtop|yes)\b|^\s*ping\s+(?!.*-c\b)"
)
#: What a stand-in does not have; notes on them begin so.
PICTURES, CODE = "pictures and sounds", "functions of the model's repository"
UNEVEN = "no exact split"  #: of a step's samples, which so many processes cannot share out
_VERSIONS = "--versions notebook rehearses it in the notebook's versions"
_ALREADY = "the versions that the notebook asks for do not have it: change the notebook or its pins"
#: Where a library refuses something, another version of it may not.
_VERSIONED = frozenset({"transformers", "trl", "peft", "datasets", "accelerate"})
_REFUSALS = ("AttributeError", "NotImplementedError", "TypeError", "ValueError")
_ON_INDEX = {"google": "protobuf", "cv2": "opencv-python", "sklearn": "scikit-learn", "PIL": "pillow"}
_NETWORK = ("ConnectionRefused", "ConnectionError", "URLError", "ConnectError", "MaxRetryError", "OfflineMode")
_INSTALLED = r" \([^()]*site-packages[^()]*\)"  #: where a module was found, as an ImportError says
_BRIEF, _LONG = 160, 300  #: of a message, with and without what to give behind it
#: What a process says, or ends with, once another one has failed.
_AFTER_ANOTHER = re.compile(r"DistBackendError|Connection (closed|reset) by peer|ended with code -?\d+$")
_NOT_OURS = ("NotImplementedError", "ModuleNotFoundError")
_OWN_ERRORS = ("NameError", "UnboundLocalError")


class State(str, Enum):
    """The answer to a question."""

    GOOD = "good"
    NOTE = "note"  #: not as in one process, with a reason that is no fault
    FAULT = "fault"
    UNKNOWN = "unknown"  #: not measured: the run did not come so far


@dataclass(frozen=True)
class Place:
    """A line that an answer speaks of, and what is to be said of it."""

    line: int | None
    text: str


@dataclass(frozen=True)
class Row:
    """A question, its answer, and the lines that it is about."""

    asked: str
    state: State
    measured: str
    places: tuple[Place, ...] = ()


@dataclass(frozen=True)
class Verdict:
    """All that a rehearsal says.

    Attributes:
        rows: the questions, in the order in which they are told.
        obstacle: why it could not be rehearsed, or None.
        needs: what the script asked of its surroundings: a kind, and what.
        notes: what was not done, or done by a stand-in.
        origins: of each model, data set and missing file: "hub" or "cache" (it has the configuration, tokenizer or
            rows of the real one), or "stand-in".
        passed: statements that training does not need, and that could not be rehearsed.
        again: the runs of the job that was ended early, each behind the signal that ended it.
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
    again: tuple[tuple[str, Run], ...] = ()

    @property
    def faults(self) -> list[Row]:
        """The questions with a bad answer."""
        return [row for row in self.rows if row.state is State.FAULT]

    @property
    def is_of_versions(self) -> bool:
        """Whether it could not be rehearsed for what these versions have not, and the notebook's may have."""
        return self.obstacle is not None and self.obstacle.text.endswith(_VERSIONS)

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
    trust: bool = False,
    again: Sequence[tuple[str, Run]] = (),
) -> Verdict:
    """Compare the run of one process with that of several.

    Args:
        plan: the script.
        alone: its run as one process.
        job: its run as several; the same run where the first one did not end.
        loads: what was asked of the hub, "models" or "datasets" and an id, and why it could not be made, or "".
        origins: where what was made for them comes from, by id: "hub", "cache" or "stand-in".
        trust: programs were started, so that what they cost is the script's own matter.
        again: runs of the job that was ended early and started again, each behind the signal that ended it.
    """
    both = Both(plan, alone, job, tuple(again))
    questions = [*QUESTIONS, *([GOES_ON] if again else [])]
    rows = tuple(Row(asked, *answer(both)) for asked, answer in questions)
    asked = loads or {}
    obstacle = _obstacle(both, {name: why for (_, name), why in asked.items() if why})
    needs, notes = _needs(both, asked), tuple(_notes(both, trust))
    made = (event["name"] for _, rank in both.everyone() for event in rank.seen("need") if event.get("made"))
    known = dict(origins or {}) | dict.fromkeys(made, "stand-in")
    return Verdict(
        plan, alone, job, rows, obstacle, needs, notes, known, tuple(_passed(plan, alone.ranks[0])), both.again
    )


@dataclass(frozen=True)
class Both:
    """The two runs that the answers compare."""

    plan: Plan
    alone: Run
    job: Run
    again: tuple[tuple[str, Run], ...] = ()

    @property
    def ended(self) -> bool:
        """Whether every process of both runs has reached its end."""
        return not any(run.stopped or any(rank.code for rank in run.ranks) for run in (self.alone, self.job))

    def everyone(self) -> Iterator[tuple[str, Rank]]:
        """Every process, with a name."""
        yield "one process", self.alone.ranks[0]
        if self.job is not self.alone:
            yield from ((f"rank {number}", rank) for number, rank in enumerate(self.job.ranks))


Answer = tuple[State, str, tuple[Place, ...]]


def _end(rank: Rank) -> Event:
    return next(rank.seen("end"), {})


def _last_line(rank: Rank) -> int | None:
    """The line at which a process ended, or of the last that it has told."""
    return next((event["line"] for event in reversed(rank.events) if event["line"]), None)


def _trainings(rank: Rank) -> list[list[Event]]:
    """The events of each training, from its begin to its end or to where the process came."""
    found: list[list[Event]] = []
    is_inside = False
    for event in rank.events:
        if event["kind"] == "train":
            found.append([])
            is_inside = True
        if is_inside:
            found[-1].append(event)
        is_inside = is_inside and event["kind"] != "trained"
    return found


def reaches_its_end(both: Both) -> Answer:
    """Every process ends with code 0, and every training that began ended."""
    places = []
    for who, rank in both.everyone():
        end = _end(rank)
        if end.get("error"):
            places.append(Place(end.get("inner"), f"{who}: {end['error']}: {end['message'][:300]}".rstrip(": ")))
        elif rank.code:
            places.append(Place(_last_line(rank), f"{who} ended with code {rank.code}"))
        for training in _trainings(rank):
            if training[-1]["kind"] != "trained" and end and end.get("line") != training[0]["line"]:
                places.append(Place(training[0]["line"], f"{who}: this training did not end, and the script went on"))
    own = (event for event in both.alone.ranks[0].seen("passed") if event["own"])
    places += [Place(event["line"], f"the notebook's own fault: {_said(both.plan, event)}") for event in own]
    if first := [place for place in places if not _AFTER_ANOTHER.search(place.text)]:
        places = first
    elif places:
        gone = ((number, rank) for number, rank in enumerate(both.job.ranks) if rank.code == 0)
        places += [Place(_end(rank).get("line"), f"rank {number} has left, with code 0") for number, rank in gone]
    if places:
        return State.FAULT, "no", tuple(places)
    if both.alone.stopped or both.job.stopped:
        return State.FAULT, "no: it was stopped", ()
    return State.GOOD, f"yes, in {both.alone.seconds:.0f} s and {both.job.seconds:.0f} s", ()


def waits_for_ever(both: Both) -> Answer:
    """No run was stopped; else, the line and the call of each process that was still there."""
    for run in (both.alone, both.job):
        if run.stopped:
            said = "every process waits" if run.stopped == "waiting" else "the time limit was reached"
            return State.FAULT, said, tuple(_waiting(both.plan, run))
    endless = [
        Place(event["line"], f"never ends: {event['command'][:80]}")
        for _, rank in both.everyone()
        for event in rank.seen("program")
        if _ENDLESS.search(event["command"])
    ]
    return (State.FAULT, "a program never ends", _distinct(endless)) if endless else (State.GOOD, "none", ())


def _waiting(plan: Plan, run: Run) -> Iterator[Place]:
    for number, rank in enumerate(run.ranks):
        open_calls: list[Event] = []
        for event in rank.seen("call", "called"):
            open_calls = [*open_calls, event] if event["kind"] == "call" else open_calls[:-1]
        if rank.code is not None:
            yield Place(_end(rank).get("line"), f"rank {number} has ended with code {rank.code}")
        elif open_calls:
            yield Place(open_calls[-1]["line"], f"rank {number} waits in {open_calls[-1]['name']}")
        else:
            threads = rank.stack.split("\n\n")
            main = next((each for each in threads if f'{plan.name}"' in each), "")
            lines = re.findall(rf'{re.escape(plan.name)}", line (\d+)', main)
            calls = re.findall(r'File ".*", line \d+ in (\w+)', main)
            yield Place(
                int(lines[0]) if lines else None, f"rank {number} is in {calls[0] if calls else 'an unknown call'}"
            )


def same_calls(both: Both) -> Answer:
    """The sequence of calls that need all processes is that of rank 0 in every process."""
    sequences = [list(rank.seen("call")) for rank in both.job.ranks]
    for number, calls in enumerate(sequences[1:], start=1):
        for index, (first, other) in enumerate(zip_longest(sequences[0], calls)):
            if first and other and first["name"] == other["name"] and first["size"] == other["size"]:
                continue
            if _was_stopped(both.job.ranks[0] if first is None else both.job.ranks[number], first, other):
                break
            sides = [
                Place(call["line"], f"rank {rank} calls {call['name']}")
                if call
                else Place(_last_line(both.job.ranks[rank]), f"rank {rank} makes no further call")
                for rank, call in ((0, first), (number, other))
            ]
            return State.FAULT, f"ranks 0 and {number} part at call {index + 1}", tuple(sides)
    return State.GOOD, f"{len(sequences[0])} calls", ()


def _was_stopped(rank: Rank, first: Event | None, other: Event | None) -> bool:
    """Whether a process made fewer calls because it did not live to make more."""
    return (first is None or other is None) and rank.code not in (0, None)


def _steps(rank: Rank) -> list[list[list[str]]]:
    """For each training, the rows that this process had in each step."""
    found = []
    for training in _trainings(rank):
        steps: list[list[str]] = [[]]
        for event in training:
            if event["kind"] == "rows":
                steps[-1] += event["rows"]
            elif event["kind"] == "step":
                steps.append([])
        found.append(steps[:-1])
    return found


def _line(rank: Rank, number: int) -> int | None:
    trainings = _trainings(rank)
    return trainings[number][0]["line"] if number < len(trainings) else None


def same_rows(both: Both) -> Answer:
    """In each step, all processes together have the rows that one process has."""
    alone = _steps(both.alone.ranks[0])
    jobs = [_steps(rank) for rank in both.job.ranks]
    if not any(any(steps) for steps in alone) or not all(jobs):
        return State.UNKNOWN, "no step was seen", ()
    if places := tuple(_other_arguments(both)):
        return State.FAULT, places[0].text, places
    sizes: list[int] = []
    for number, (steps, training) in enumerate(zip(alone, _trainings(both.alone.ranks[0]), strict=True)):
        begin = training[0]
        for step, rows in enumerate(steps):
            if begin["epoch"] is not None and begin["epoch"] < (step + 1) * begin["samples"]:
                return State.NOTE, f"an epoch ends in step {step + 1}: its rest is not compared", ()
            parts = [job[number][step] if number < len(job) and step < len(job[number]) else [] for job in jobs]
            if text := _different_rows(rows, parts):
                places = (Place(begin["line"], f"step {step + 1} of training {number + 1}: {text}"),)
                if -(-len(rows) // len(parts)) * len(parts) == sum(map(len, parts)) != len(rows):
                    return State.NOTE, f"{text}: {UNEVEN}{_even(len(rows), len(parts))}", places
                if begin["grouped"] and len({row for part in parts for row in part}) == len(rows):
                    return State.NOTE, f"{text}: rows are grouped by length within the batch of each process", places
                return State.FAULT, text, places
            sizes.append(len(rows))
    return State.GOOD, f"{'/'.join(map(str, dict.fromkeys(sizes)))} samples a step", ()


def _even(samples: int, processes: int) -> str:
    """The numbers of processes next to this one that divide a step, to be said behind `UNEVEN`."""
    fits = [count for count in range(2, samples + 1) if samples % count == 0]
    near = [*[count for count in fits if count < processes][-1:], *[count for count in fits if count > processes][:1]]
    return f"; {' or '.join(map(str, near))} processes have one" if near else ""


def _other_arguments(both: Both) -> Iterator[Place]:
    """Where a process trains for longer, at another rate, or into another folder than it should."""
    count = len(both.job.ranks)
    one, *ranks = (list(rank.seen("arguments")) for _, rank in both.everyone())
    for alone, *several in zip(one, *ranks, strict=False):
        for rank, event in enumerate(several):
            for name, value in event["schedule"].items():
                if value != alone["schedule"][name]:
                    yield Place(
                        event["line"], f"{name} is {alone['schedule'][name]} in one process, {value} in {count}"
                    )
            if event["folder"] != several[0]["folder"]:
                yield Place(
                    event["line"], f"output_dir is {several[0]['folder']} on rank 0, {event['folder']} on {rank}"
                )


def _different_rows(rows: list[str], parts: list[list[str]]) -> str:
    """How the rows of several processes differ from those of one, or ""."""
    total, expected = Counter(row for part in parts for row in part), Counter(rows)
    count = sum(total.values())
    if count != len(rows):
        return f"{len(rows)} sample{'s' * (len(rows) != 1)} in one process, {count} in {len(parts)}"
    if total == expected:
        return ""
    bare, wanted = (Counter(row.partition(":")[0] for row in each.elements()) for each in (total, expected))
    if bare == wanted:
        return f"{sum((expected - total).values())} of {count} samples have other labels than in one process"
    if any(n > 1 and n > expected[row] for row, n in total.items()):
        return f"{count} samples, but {len(total)} different ones where one process has {len(expected)}"
    return f"only {sum((expected & total).values())} of {count} samples are those of one process"


def same_losses(both: Both) -> Answer:
    """The losses and gradient norms of each step are those of one process."""
    one, other = both.alone.ranks[0], both.job.ranks[0]
    bound = max([_LOSS, *(2 * event["value"] for event in one.seen("precision"))])
    worst: tuple[float, float] = (0.0, 0.0)
    seen = 0
    for number, (first, second) in enumerate(zip(_trainings(one), _trainings(other), strict=False)):
        for a, b in zip(_losses(first), _losses(second), strict=False):
            seen += 1
            loss = abs(a["loss"] - b["loss"])
            apart = abs(a.get("grad_norm", 0.0) - b.get("grad_norm", 0.0))
            norm = apart / max(abs(a.get("grad_norm", 0.0)), 1e-3)
            worst = max(worst[0], loss), max(worst[1], norm)
            if not (loss <= bound * max(1.0, abs(a["loss"])) and (norm <= _NORM or apart <= bound - _LOSS)):
                return _different_losses(both, number, a, b)
    if not seen:
        return State.UNKNOWN, "no loss was logged", ()
    state = State.NOTE if same_rows(both)[0] is State.FAULT else State.GOOD
    if state is State.GOOD and (answer := _evaluated_otherwise(both)):
        return answer
    return state, f"losses to {worst[0]:.0e}, gradient norms to {worst[1]:.1%}, {seen} steps", ()


def _evaluated_otherwise(both: Both) -> Answer | None:
    """Where evaluations of all processes together have other rows than those of one process."""
    alone, *job = (list(rank.seen("other rows")) for _, rank in both.everyone())
    one, several = ({row for each in events for event in each for row in event["rows"]} for events in ([alone], job))
    if one == several or not one or not several:
        return None
    text = f"{len(one)} rows are evaluated in one process, {len(one & several)} of these in {len(job)}"
    if "drop_last" in both.plan.text and len(one - several) < len(alone[0]["rows"]) * len(job):
        return State.NOTE, f"{text}: what fills no batch of all processes is dropped", ()
    return State.FAULT, text, (Place(next(event["line"] for each in job for event in each), text),)


def _losses(training: list[Event]) -> list[dict[str, float]]:
    return [event["values"] for event in training if event["kind"] == "log" and "loss" in event["values"]]


def _different_losses(both: Both, number: int, a: dict[str, float], b: dict[str, float]) -> Answer:
    text = f"loss {a['loss']:.4f} in one process, {b['loss']:.4f} in {len(both.job.ranks)}"
    if a.get("grad_norm") is not None and b.get("grad_norm") is not None:
        text += f"; gradient norm {a['grad_norm']:.3f} and {b['grad_norm']:.3f}"
    line = _line(both.alone.ranks[0], number)
    state = same_rows(both)[0]
    if state in (State.FAULT, State.NOTE):
        return State.NOTE, text + ": it had other rows", ()
    if _keys(both.alone.ranks) != _keys(both.job.ranks):
        return State.NOTE, text + ": its completions or rewards were others", ()
    return State.FAULT, text, (Place(line, f"training {number + 1}: {text}"),)


def _keys(ranks: Iterable[Rank]) -> Counter[str]:
    """How often each completion got which reward."""
    return Counter(
        f"{event['name']} {key} {value}"
        for rank in ranks
        for event in rank.seen("reward")
        for key, value in zip(event["keys"], event["values"], strict=False)
    )


def same_weights(both: Both) -> Answer:
    """At the end of each training every process has the same trained weights."""
    trained = [list(rank.seen("trained")) for rank in both.job.ranks]
    if not trained[0]:
        return State.UNKNOWN, "no training ended", ()
    for number, events in enumerate(zip(*trained, strict=False), start=1):
        if len({event["weights"] for event in events}) > 1:
            line = events[0]["line"]
            text = ", ".join(f"rank {rank} {event['weights'][:6]}" for rank, event in enumerate(events))
            return (
                State.FAULT,
                f"no: {text}",
                (Place(line, f"after training {number} the ranks hold different weights"),),
            )
    return State.GOOD, "yes", ()


def rewards_agree(both: Both) -> Answer:
    """The same completion of the same prompt gets the same reward in every process."""
    seen: dict[tuple[str, str, str], tuple[str, Any]] = {}
    count = 0
    for who, rank in both.everyone():
        for event in rank.seen("reward"):
            for key, value in zip(event["keys"], event["values"], strict=False):
                count += 1
                # A reward that the script wraps to draw alike in all processes draws as it likes in one.
                group = "" if event.get("wrapped") and rank is both.alone.ranks[0] else "job"
                before = seen.setdefault((event["name"], group, key), (who, value))
                if before[1] != value:
                    text = f"{event['name']} gives the same completion {before[1]} in {before[0]} and {value} in {who}"
                    return State.FAULT, "no", (Place(event["at"] or event["line"], text),)
    return State.GOOD, f"{count} rewards of {len(seen)} completions" if count else "no rewards", ()


def one_writer(both: Both) -> Answer:
    """No file is written by two processes, and no program, server or upload is asked for by two."""
    asked: dict[tuple[str, str], dict[int, Event]] = {}
    for number, rank in enumerate(both.job.ranks):
        for event in rank.events:
            what = _outside(event)
            if what:
                asked.setdefault(what, {}).setdefault(number, event)
    places = [
        Place(min(events.items())[1]["line"], f"{what} is {how} by ranks {', '.join(map(str, sorted(events)))}")
        for (how, what), events in asked.items()
        if len(events) > 1
    ]
    places += _early_reads(both.job)
    if places:
        return State.FAULT, f"no: {len(places)} shared", _distinct(places)
    return State.GOOD, f"yes: {len(asked)} written, started or served", ()


def _outside(event: Event) -> tuple[str, str] | None:
    """What an event does to the outside, as a verb and a thing."""
    if event["kind"] in ("write", "remove"):
        done = "written" if event["kind"] == "write" else "removed"
        return None if _OWN.search(event["path"]) else (done, event["path"])
    told = {"program": ("started", "command"), "serve": ("served", "port"), "upload": ("uploaded", "to")}
    told |= {"tracked": ("begun", "what")}
    if event["kind"] in told and event["line"]:
        how, key = told[event["kind"]]
        return how, str(event[key])[:80]
    return None


def _early_reads(job: Run) -> Iterator[Place]:
    """Files that a process reads although another one may not yet have written them: no call of all lies between."""
    written: dict[str, tuple[int, int]] = {}
    reads: list[tuple[str, int, int, Event]] = []
    for number, rank in enumerate(job.ranks):
        calls = 0
        for event in rank.events:
            calls += event["kind"] == "called"
            if event["kind"] == "write" and event["line"]:
                for path in (event["path"], *map(str, PurePosixPath(event["path"]).parents)):
                    written.setdefault(path, (number, calls))
            elif path := _looked_for(event):
                reads.append((path, number, calls, event))
    for path, number, calls, event in reads:
        by, after = written.get(path, (number, -1))
        if by != number and calls == after and not _OWN.search(path):
            line = event.get("inner") or event["line"]
            yield Place(line, f"rank {number} reads {path}, which rank {by} writes, without waiting for it")


def _looked_for(event: Event) -> str:
    """The path of what an event reads, has made since it is not there, or ends for."""
    if event["kind"] == "read":
        return str(event["path"])
    is_lack = event["kind"] == "end" and event.get("error") == "FileNotFoundError"
    lacks = re.search(r"'([^']+)'", event["message"]) if is_lack else None
    is_made = event["kind"] == "need" and event["what"] == "files" and event["line"]
    name = lacks[1] if lacks else event["name"] if is_made else ""
    return str(name).rstrip("/").removeprefix("./")


def main_process_goes_on(both: Both) -> Answer:
    """After the last training the other processes do nothing to the outside, and nothing outlives the job."""
    places = []
    for number, rank in enumerate(both.job.ranks[1:], start=1):
        events = list(rank.events)
        last = max((i for i, event in enumerate(events) if event["kind"] == "trained"), default=len(events))
        for event in events[last:]:
            what = _outside(event)
            if what and not (event["kind"] == "write" and event["helper"] if "helper" in event else False):
                places.append(Place(event["line"], f"rank {number}: {what[1]} is {what[0]} after training"))
    for who, rank in both.everyone():
        things = [each for left in rank.seen("left") for kind in ("threads", "programs") for each in left.get(kind, ())]
        places += [Place(line, f"{who} leaves {name} running") for name, line in things]
    places += [Place(None, f"{name} outlives the job") for name in (*both.alone.left, *both.job.left)]
    if places:
        return State.FAULT, "no", _distinct(places)
    if not both.ended:
        return State.UNKNOWN, "it did not come so far", ()
    if any(left.get("group") for rank in both.job.ranks for left in rank.seen("left")):
        return State.NOTE, "the process group is never closed: torch.distributed.destroy_process_group()", ()
    return State.GOOD, "yes, and nothing is left behind", ()


def own_device(both: Both) -> Answer:
    """No model is spread over the GPUs of other processes, in code that more than the main process comes to."""
    others = [_end(rank).get("line") or math.inf for rank in both.job.ranks[1:]]
    last = max(others, default=math.inf)  # where they leave
    places = tuple(Place(line, text) for line, text in both.plan.spread if line <= last)
    return (State.FAULT, "no", places) if places else (State.GOOD, "yes", ())


def goes_on_after_an_end(both: Both) -> Answer:
    """Ended early and started again, the training goes on with the losses of the one that nobody ended."""
    *early, (_, last) = both.again
    code = 128 + signal.SIGTERM
    for asked, run in early:
        if asked == "SIGTERM" and any(rank.code != code for rank in run.ranks):
            codes = ", ".join(str(rank.code) for rank in run.ranks)
            said = f"told to end (SIGTERM), the processes ended with {codes}, not {code}: nothing was saved"
            return State.FAULT, "no", (Place(None, said),)
    for number, rank in enumerate(last.ranks):
        if rank.code or last.stopped:
            end = _end(rank)
            said = (
                f"started again, rank {number} does not reach its end: {end.get('error', '')} {end.get('message', '')}"
            )
            return State.FAULT, "no", (Place(end.get("inner"), said.strip()[:300]),)
    expected, found = losses([both.job]), losses([run for _, run in both.again])
    if expected.keys() != found.keys():
        return State.FAULT, "no", (Place(None, f"steps {sorted(found)}, without an end {sorted(expected)}"),)
    trained = len(losses([last]))
    worst = max((abs(found[step] - loss) for step, loss in expected.items()), default=0.0)
    if worst > _SAME * max([1.0, *map(abs, expected.values())]):
        return State.FAULT, f"other losses (by {worst:.0e})", (Place(None, "started again, it has other losses"),)
    if trained == len(expected) or not all(any(rank.code for rank in run.ranks) for _, run in early):
        return State.FAULT, "no", (Place(None, "started again, it begins anew"),)
    signals = dict.fromkeys(asked for asked, _ in early)
    return State.GOOD, f"yes, after {' and '.join(signals)}: losses to {worst:.0e}", ()


def losses(runs: Sequence[Run]) -> dict[tuple[int, int], float]:
    """The losses of the main process, by training and step; of runs that follow each other the last one's."""
    found: dict[tuple[int, int], float] = {}
    for run in runs:
        training = 0
        for event in run.ranks[0].seen("train", "log"):
            training += event["kind"] == "train"
            if event["kind"] == "log" and "loss" in event["values"]:
                found[training, event["step"]] = event["values"]["loss"]
    return found


GOES_ON: tuple[str, Callable[[Both], Answer]] = "killed and started again, it goes on", goes_on_after_an_end
QUESTIONS: Sequence[tuple[str, Callable[[Both], Answer]]] = (
    ("reaches its end", reaches_its_end),
    ("no process waits for ever", waits_for_ever),
    ("same calls that need all, in one order", same_calls),
    ("same global batch, same rows", same_rows),
    ("losses and gradient norms of one process", same_losses),
    ("all ranks hold the same weights at the end", same_weights),
    ("rewards agree", rewards_agree),
    ("one writer a file, one caller of a program or service", one_writer),
    ("each process has its own GPU", own_device),
    ("after training only the main process goes on", main_process_goes_on),
)


def _distinct(places: Iterable[Place]) -> tuple[Place, ...]:
    return tuple(dict.fromkeys(places))


def _obstacle(both: Both, lacking: Mapping[str, str]) -> Place | None:
    """Why the script could not be rehearsed, where that is no fault of its own.

    What ends it as one process already may lie in a stand-in as well as in the script, unless it is a name that nothing
    has bound.
    """
    alone = both.alone.ranks[0]
    if both.alone.stopped == "limit":
        place = next(_waiting(both.plan, both.alone))
        seconds = both.alone.seconds
        said = f"it took longer than {seconds:.0f} s as one process; --timeout {3 * seconds:.0f} lets it take longer"
        return Place(place.line, said)
    for _, rank in both.everyone():
        end = _end(rank)
        error, message = end.get("error", ""), end.get("message", "")
        if end.get("unknown"):
            return Place(end.get("inner"), end["unknown"])
        if error and lacking:
            return Place(end.get("inner"), "; ".join(f"no stand-in for {name}: {why}" for name, why in lacking.items()))
        is_first = rank is alone and error not in _OWN_ERRORS
        if error and (is_first or end.get("ours") or error in _NOT_OURS or _is_cut_off(error, message)):
            give = _to_give(both.plan, rank, end)
            message = "" if give.startswith("--trust") else _with_command(both.plan, error, message)
            message = message[: _BRIEF if give else _LONG]
            said = f"{error}: {message}" if message else error
            return Place(end.get("inner"), "; ".join(filter(None, (said, give))))
        if rank.code and not end and rank.code > 0:
            said = (rank.said.strip().splitlines() or ["?"])[-1]
            return Place(None, f"an error of nb2ddp rehearse, not of the script: {said[:200]}; please report it")
        if rank.code and not error and rank is alone:
            return Place(end.get("line"), f"as one process it ended with code {rank.code}. {rank.said[-300:]}".strip())
    if both.ended and not any(_trainings(rank) for _, rank in both.everyone()):
        return Place(None, "no training began: a test led past it here, as where a file is not there")
    return None


def _passed(plan: Plan, rank: Rank) -> Iterator[Place]:
    """The statements that were passed over for no fault of their own, with the reason."""
    yield from (Place(event["line"], _said(plan, event)) for event in rank.seen("passed") if not event["own"])


def _said(plan: Plan, event: Event) -> str:
    """An exception in one line."""
    return f"{event['error']}: {_with_command(plan, event['error'], event['message'])[:300]}".rstrip(": ")


def _with_command(plan: Plan, error: str, message: str) -> str:
    """A message in one line, with the line to type where a package, or a part of one, is missing."""
    message = " ".join(re.sub(_INSTALLED, "", message).split())
    missing = re.search(r"No module named '([\w.]+)'", message) if error == "ModuleNotFoundError" else None
    if missing is None:
        return message or "what it takes the first of is empty" * (error == "StopIteration")
    package = missing[1].split(".")[0]
    if "." in missing[1] and plan.environment.has(package):
        return f"{message}: {_other_versions(plan)}"
    return f"{message}: pip install {_ON_INDEX.get(package, package)}"


def _to_give(plan: Plan, rank: Rank, end: Event) -> str:
    """What would let the script go on, in one line to type, where that can be told."""
    error, message = end["error"], end["message"]
    if host := _host(error, message):
        return f"--trust lets it ask {host}"
    missing = _missing(rank, end)
    for event in rank.seen("clone"):
        if not event["there"] and _comes_of(event["folder"], plan.text, message, missing):
            return f"git clone {event['address']} {event['folder']} beside the script, or --network"
    if error == "ModuleNotFoundError":
        return ""
    is_refused = end.get("library") in _VERSIONED and error in _REFUSALS  # by a library, whatever the rows
    unknown = re.search(r"unexpected keyword argument '(\w+)'", message) if error == "TypeError" else None
    is_of_versions = error == "ImportError" or (unknown is not None and unknown[1] in plan.text)
    if missing and not is_of_versions:
        packages = " ".join(_ON_INDEX.get(name, name) for name in missing if f"{name}.py" not in plan.text)
        files = ", ".join(f"{name}.py" for name in missing)
        install = f"pip install {packages}, or " if packages else ""
        return f"{install}put {files} beside the script: in this rehearsal they do nothing"
    # What libraries hand to the script has other types in other versions.
    is_of_type = error in ("AttributeError", "TypeError") and not plan.environment.is_notebooks
    if is_of_versions or (plan.other_versions and (is_refused or is_of_type)):
        return _other_versions(plan)
    if error == "FileNotFoundError" and (file := re.search(r"No such file or directory: '([^'/]+)'", message)):
        return f"put {file[1]} beside the script"
    asked = [event["name"] for event in rank.seen("asked")]
    if asked and end.get("raised"):  # the script looked for it, and raised this itself
        return f"put {Path(asked[-1]).name} beside the script"
    if not (is_refused or unknown) and any(
        event["kind"] == "made" or event.get("made") for event in rank.seen("made", "need")
    ):
        return "--data FILE gives it real rows"
    if end.get("ours"):
        return "an error of nb2ddp rehearse, not of the script: please report it"
    if plan.other_versions and not plan.environment.is_notebooks and end.get("library"):
        return _VERSIONS
    version = plan.environment.versions.get(end.get("library", ""), "")
    if is_refused and version:
        return f"{end['library']} {version} refuses it: change this line, or take another version"
    return "a library does not take what this line gives it: change this line" if unknown else ""


def _host(error: str, message: str) -> str:
    """The machine that an error says was not reached; "" for any other error."""
    if refused := re.search(r"a rehearsal reaches nothing outside this machine: \('([^']+)'", message):
        return refused[1]
    if any(name in error for name in _NETWORK) or "ConnectionPool(host=" in message:
        host = re.search(r"host='([^']+)'", message)
        return host[1] if host else "the network"
    return ""


def _other_versions(plan: Plan) -> str:
    """What to do where a library has not what the script takes."""
    return _VERSIONS if plan.other_versions and not plan.environment.is_notebooks else _ALREADY


def _missing(rank: Rank, end: Event) -> tuple[str, ...]:
    """The modules that did nothing, and on which the statement that failed rests."""
    absent = dict.fromkeys(event["name"].split(".")[0] for event in rank.seen("stand-in") if event.get("package"))
    named = re.search(r"No module named '(\w+)", end["message"])
    return tuple(name for name in absent if name in end.get("rests", ()) or (named and name == named[1]))


def _comes_of(folder: str, text: str, message: str, missing: Iterable[str]) -> bool:
    """Whether a failure comes of a clone that is not there: it names its folder, or rests on a module in it."""
    name = Path(folder).name
    plain = re.sub(r"\W|_", "", name).lower()
    is_searched = re.search(rf"sys\.path\.\w+\(.*{re.escape(name)}", text) is not None
    return name in message or any(is_searched or re.sub("_", "", each).lower() in plain for each in missing)


def _is_cut_off(error: str, message: str) -> bool:
    return "a rehearsal" in message or any(name in error for name in _NETWORK)


def _needs(both: Both, loads: Iterable[tuple[str, str]]) -> dict[str, tuple[str, ...]]:
    """What the script asks of its surroundings, by kind."""
    wanted: dict[str, list[str]] = {"GPUs": ["one for each process"], "packages": list(both.plan.packages)}
    if told := stated(both.plan.text):
        wanted["its first lines name"] = told
    for kind, name in loads:
        wanted.setdefault({"models": "models", "datasets": "data sets"}[kind], []).append(name)
    for _, rank in both.everyone():
        for event in rank.seen("need"):
            wanted.setdefault(event["what"], []).append(str(event["name"]))
    for file in both.plan.files:
        wanted.setdefault("files", []).append(str(file.relative_to(both.plan.folder)))
    return {kind: tuple(dict.fromkeys(names)) for kind, names in wanted.items() if names}


def _notes(both: Both, trust: bool) -> Iterator[str]:
    """What was answered by a stand-in, or not done."""
    seen: list[str] = []
    for _, rank in both.everyone():
        for event in rank.events:
            place = both.plan.place(event["line"])
            if event["kind"] == "learnt" and event["what"]:
                seen.append(f"made rows: {'; '.join(event['what'])}")
            elif event["kind"] == "stand-in" and "." not in event["name"]:
                seen.append(f"{event['name']}: a stand-in ({place})")
            elif event["kind"] == "program" and not trust:
                seen.append(f"not run: {event['command'][:100]} ({place})")
            elif event["kind"] == "server":
                seen.append(f"port {event['port']} of this machine: a stand-in answers {{}} ({place})")
            elif event["kind"] == "blind":
                seen.append(f"{PICTURES} are passed over: its model is one of text ({place})")
            elif event["kind"] == "foreign":
                seen.append(f"{CODE} are passed over: {event['name']} ({place})")
            elif event["kind"] == "upload":
                seen.append(f"not uploaded: {event['to']} ({place})")
            elif event["kind"] == "connect" and event["line"]:
                seen.append(f"not reached: {event['to']} ({place})")
    yield from dict.fromkeys(seen)
