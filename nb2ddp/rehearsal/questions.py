"""The questions of a rehearsal, each with a function that answers it from the runs."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from enum import Enum
from itertools import zip_longest
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

from nb2ddp.facts.commands import never_ends, only_shows
from nb2ddp.rehearsal.evidence import Both, Code, Place, end_of, last_line, trainings, waiting
from nb2ddp.rehearsal.obstacle import in_a_line
from nb2ddp.rehearsal.stage import events

if TYPE_CHECKING:
    from nb2ddp.rehearsal.run import Rank, Run

#: Losses of equal rows differ only by rounding. The measured difference is below 9e-5 in float32, and below 2e-3 with
#: weights in 16 bits. A loss that is itself in 16 bits (sentence-transformers 5.7) may differ by two of its steps.
_LOSS, _NORM = 5e-3, 0.05
#: Files that are not results for the user: caches, and states that each process saves under a separate name.
_OWN = re.compile(
    r"(^|/)(unsloth_compiled_cache|__pycache__|\.cache|\.locks|runs|(models|datasets|spaces)--[^/]+)/|"
    r"\.lock$|\.tmp|\.incomplete$|/tmp\w*$|rng_state_\d+"
)
#: Errors of torch in a process after another process has failed.
_AFTER_ANOTHER = re.compile(r"DistBackendError|Connection (closed|reset) by peer")


class State(str, Enum):
    """The answer to a question."""

    GOOD = "good"
    NOTE = "note"  #: differs from one process, for a reason that is not a fault
    FAULT = "fault"
    UNKNOWN = "unknown"  #: not measured: the run ended before


Answer = tuple[State, str, tuple[Place, ...]]


def _answering(state: State) -> Callable[..., Answer]:
    """Return a function that makes an answer of this state from a measurement and the distinct places that show it."""

    def answer(measured: str, *places: Place) -> Answer:
        return state, measured, tuple(dict.fromkeys(places))

    return answer


_good, _note, _fault, _unknown = map(_answering, (State.GOOD, State.NOTE, State.FAULT, State.UNKNOWN))


def reaches_its_end(both: Both) -> Answer:
    """Check that every process ended with code 0, and that every training that began has ended."""
    places = []
    for who, rank in both.everyone():
        end = end_of(rank)
        if end.error:
            text = f"{who}: {end.error}: {end.message[:300]}".rstrip(": ")
            places.append(Place(end.inner, text, Code.AFTER_ANOTHER if _AFTER_ANOTHER.search(text) else None))
        elif rank.code:
            places.append(Place(last_line(rank), f"{who} ended with code {rank.code}", Code.AFTER_ANOTHER))
        for training in trainings(rank):
            begin, last = training[0], training[-1]
            if not isinstance(last, events.Trained) and end.code is not None and end.line != begin.line:
                places.append(Place(begin.line, f"{who}: this training did not end, and the script went on"))
    own = (event for event in both.one.seen(events.Passed) if event.own)
    places += [Place(event.line, f"the notebook's own fault: {in_a_line(both.plan, event)}") for event in own]
    if first := [place for place in places if place.code is not Code.AFTER_ANOTHER]:
        places = first
    elif places:
        gone = ((number, rank) for number, rank in enumerate(both.job.ranks) if rank.code == 0)
        places += [Place(end_of(rank).line, f"rank {number} ended early, with code 0") for number, rank in gone]
    if places:
        return _fault("no", *places)
    if both.alone.stopped or both.job.stopped:
        return _fault("no: it was stopped")
    return _good(f"yes, in {both.alone.seconds:.0f} s and {both.job.seconds:.0f} s")


def waits_for_ever(both: Both) -> Answer:
    """Check that no run was stopped; else return the line and the call of each process that was still running."""
    for run in (both.alone, both.job):
        if run.stopped:
            outcome = "every process waits" if run.stopped == "waiting" else "the time limit was reached"
            return _fault(outcome, *waiting(both.plan, run))
    endless = [
        Place(event.line, f"never ends: {event.command[:80]}")
        for _, rank in both.everyone()
        for event in rank.seen(events.Program)
        if never_ends(event.command)
    ]
    return _fault("a program never ends", *endless) if endless else _good("none")


def same_calls(both: Both) -> Answer:
    """Check that every process makes the same sequence of collective calls as rank 0."""
    ranks = both.job.ranks
    sequences = [list(rank.seen(events.Call)) for rank in ranks]
    for number, calls in enumerate(sequences[1:], start=1):
        for index, (first, other) in enumerate(zip_longest(sequences[0], calls)):
            if first and other and (first.name, first.size) == (other.name, other.size):
                continue
            missing = 0 if first is None else number if other is None else None
            if missing is not None and ranks[missing].code not in (0, None):
                break  # it ended before it could make more calls
            sides = [
                Place(call.line, f"rank {rank} calls {call.name}")
                if call
                else Place(last_line(ranks[rank]), f"rank {rank} makes no further call")
                for rank, call in ((0, first), (number, other))
            ]
            return _fault(f"ranks 0 and {number} differ at call {index + 1}", *sides)
    return _good(f"{len(sequences[0])} calls")


def _steps(rank: Rank) -> list[list[list[str]]]:
    """Return the rows of this process in each step of each training."""
    found = []
    for training in trainings(rank):
        steps: list[list[str]] = [[]]
        for event in training:
            if isinstance(event, events.Rows):
                steps[-1] += event.rows
            elif isinstance(event, events.Step):
                steps.append([])
        found.append(steps[:-1])
    return found


def same_rows(both: Both) -> Answer:
    """Check that in each step all processes together have the same rows as one process."""
    alone = _steps(both.one)
    jobs = [_steps(rank) for rank in both.job.ranks]
    if not any(any(steps) for steps in alone) or not all(jobs):
        return _unknown("no step was seen")
    if places := [*_other_arguments(both)]:
        return _fault(places[0].text, *places)
    sizes: list[int] = []
    for number, (steps, begin) in enumerate(zip(alone, both.one.seen(events.Train), strict=True)):
        for step, rows in enumerate(steps):
            if begin.epoch is not None and begin.epoch < (step + 1) * begin.samples:
                return _note(f"an epoch ends in step {step + 1}: the rest is not compared")
            parts = [job[number][step] if number < len(job) and step < len(job[number]) else [] for job in jobs]
            if text := _different_rows(rows, parts):
                place = Place(begin.line, f"step {step + 1} of training {number + 1}: {text}")
                if -(-len(rows) // len(parts)) * len(parts) == sum(map(len, parts)) != len(rows):
                    return _note(f"{text}: no exact split", replace(place, code=Code.UNEVEN))
                if begin.grouped and len({row for part in parts for row in part}) == len(rows):
                    return _note(f"{text}: rows are grouped by length within the batch of each process", place)
                if _are_drawn_anew(both, number, step, rows):
                    return _note("the notebook trains on new rows in each run; all processes share them")
                is_full = len(rows) == sum(map(len, parts))
                return _fault(text, replace(place, code=Code.OTHER_ROWS if is_full else None))
            sizes.append(len(rows))
    return _good(f"{'/'.join(map(str, dict.fromkeys(sizes)))} samples a step")


def _are_drawn_anew(both: Both, training: int, step: int, rows: list[str]) -> bool:
    """Return whether a second run of one process also has other rows in a step, and all processes prepared the same."""
    prepared = {[*rank.seen(events.Train)][training].rows for rank in both.job.ranks}
    again = _steps(both.again.ranks[0]) if both.again is not None else []
    return len(prepared) == 1 and any(sorted(steps[step]) != sorted(rows) for steps in again[training : training + 1])


def _other_arguments(both: Both) -> Iterator[Place]:
    """Yield where a process trains for longer, at another rate, or into another folder than it should."""
    count = len(both.job.ranks)
    one, *ranks = (list(rank.seen(events.Arguments)) for _, rank in both.everyone())
    for alone, *several in zip(one, *ranks, strict=False):
        for rank, event in enumerate(several):
            for name, value in event.schedule.items():
                if value != alone.schedule[name]:
                    yield Place(event.line, f"{name} is {alone.schedule[name]} in one process, {value} in {count}")
            if event.folder != several[0].folder:
                yield Place(event.line, f"output_dir is {several[0].folder} on rank 0, {event.folder} on {rank}")


def _different_rows(rows: list[str], parts: list[list[str]]) -> str:
    """Return how the rows of several processes differ from those of one process, or ""."""
    total, expected = Counter(row for part in parts for row in part), Counter(rows)
    count = sum(total.values())
    if count != len(rows):
        return f"{len(rows)} sample{'s' * (len(rows) != 1)} in one process, {count} in {len(parts)}"
    if total == expected:
        return ""
    bare, wanted = (Counter(row.partition(":")[0] for row in each.elements()) for each in (total, expected))
    if bare == wanted:
        return f"{sum((expected - total).values())} of {count} samples have different labels in one process"
    if any(n > 1 and n > expected[row] for row, n in total.items()):
        return f"{count} samples, but only {len(total)} distinct ones; one process has {len(expected)}"
    return f"only {sum((expected & total).values())} of {count} samples are the same as in one process"


def same_losses(both: Both) -> Answer:
    """Check that each step has the same losses and gradient norms as in one process."""
    one, other = both.one, both.job.ranks[0]
    bound = max([_LOSS, *(2 * event.value for event in one.seen(events.Precision))])
    worst: tuple[float, float] = (0.0, 0.0)
    steps = 0
    for number, (first, second) in enumerate(zip(trainings(one), trainings(other), strict=False)):
        for a, b in zip(_losses(first), _losses(second), strict=False):
            steps += 1
            loss = abs(a["loss"] - b["loss"])
            apart = abs(a.get("grad_norm", 0.0) - b.get("grad_norm", 0.0))
            norm = apart / max(abs(a.get("grad_norm", 0.0)), 1e-3)
            worst = max(worst[0], loss), max(worst[1], norm)
            if not (loss <= bound * max(1.0, abs(a["loss"])) and (norm <= _NORM or apart <= bound - _LOSS)):
                return _different_losses(both, number, a, b)
    if not steps:
        return _unknown("no loss was logged")
    outcome = f"losses within {worst[0]:.0e}, gradient norms within {worst[1]:.1%}, {steps} steps"
    return _note(outcome) if same_rows(both)[0] is State.FAULT else _evaluated_otherwise(both) or _good(outcome)


def _evaluated_otherwise(both: Both) -> Answer | None:
    """Return an answer if the evaluations of all processes together have other rows than those of one process."""
    alone, *job = (list(rank.seen(events.OtherRows)) for _, rank in both.everyone())
    one, several = (
        {row for each in evaluations for event in each for row in event.rows} for evaluations in ([alone], job)
    )
    if one == several or not one or not several:
        return None
    text = f"{len(one)} rows are evaluated in one process, {len(one & several)} of these in {len(job)}"
    if "drop_last" in both.plan.text and len(one - several) < len(alone[0].rows) * len(job):
        return _note(f"{text}: rows that do not fill a batch of all processes are dropped")
    return _fault(text, Place(next(event.line for each in job for event in each), text))


def _losses(training: list[events.Event]) -> list[dict[str, float]]:
    return [event.values for event in training if isinstance(event, events.Logged) and "loss" in event.values]


def _different_losses(both: Both, number: int, a: dict[str, float], b: dict[str, float]) -> Answer:
    text = f"loss {a['loss']:.4f} in one process, {b['loss']:.4f} in {len(both.job.ranks)}"
    if a.get("grad_norm") is not None and b.get("grad_norm") is not None:
        text += f"; gradient norm {a['grad_norm']:.3f} and {b['grad_norm']:.3f}"
    line = trainings(both.one)[number][0].line
    state = same_rows(both)[0]
    if state in (State.FAULT, State.NOTE):
        return _note(text + ": its rows or settings differ")
    if _keys(both.alone.ranks) != _keys(both.job.ranks):
        return _note(text + ": its completions or rewards differ")
    return _fault(text, Place(line, f"training {number + 1}: {text}"))


def _keys(ranks: Iterable[Rank]) -> Counter[str]:
    """Count how often each completion got each reward."""
    return Counter(
        f"{event.name} {key} {value}"
        for rank in ranks
        for event in rank.seen(events.Reward)
        for key, value in zip(event.keys, event.values, strict=False)
    )


def same_weights(both: Both) -> Answer:
    """Check that every process has the same trained weights at the end of each training."""
    trained = [list(rank.seen(events.Trained)) for rank in both.job.ranks]
    if not trained[0]:
        return _unknown("no training ended")
    for number, ends in enumerate(zip(*trained, strict=False), start=1):
        if len({end.weights for end in ends}) > 1:
            text = ", ".join(f"rank {rank} {end.weights[:6]}" for rank, end in enumerate(ends))
            place = Place(ends[0].line, f"after training {number} the ranks hold different weights")
            return _fault(f"no: {text}", place)
    return _good("yes")


def rewards_agree(both: Both) -> Answer:
    """Check that the same completion of the same prompt gets the same reward in every process."""
    given: dict[tuple[str, str, str], tuple[str, Any]] = {}
    count = 0
    for who, rank in both.everyone():
        for event in rank.seen(events.Reward):
            for key, value in zip(event.keys, event.values, strict=False):
                count += 1
                # A wrapped reward draws the same numbers in all processes of a job, but others in one process.
                group = "" if event.wrapped and rank is both.one else "job"
                before = given.setdefault((event.name, group, key), (who, value))
                if before[1] != value:
                    text = f"{event.name} gives the same completion {before[1]} in {before[0]} and {value} in {who}"
                    return _fault("no", Place(event.at or event.line, text))
    return _good(f"{count} rewards of {len(given)} completions" if count else "no rewards")


def one_writer(both: Both) -> Answer:
    """Check that no two processes write the same file, or start the same program, server or upload."""
    asked: dict[tuple[str, str], dict[int, events.Event]] = {}
    for number, rank in enumerate(both.job.ranks):
        for event in rank.events:
            if what := _outside(event):
                asked.setdefault(what, {}).setdefault(number, event)
    places = [
        Place(by_rank[min(by_rank)].line, f"{what} is {how} by ranks {', '.join(map(str, sorted(by_rank)))}")
        for (how, what), by_rank in asked.items()
        if len(by_rank) > 1
    ]
    places += _early_reads(both.job)
    if places:
        return _fault(f"no: {len(places)} shared", *places)
    return _good(f"yes, none of {len(asked)} is shared")


def _outside(event: events.Event) -> tuple[str, str] | None:
    """Return an event's effect outside the process, as a verb and an object; None if there is none."""
    match event:
        case events.Write(path) if not _OWN.search(path):
            return "written", path
        case events.Remove(path) if not _OWN.search(path):
            return "removed", path
        case events.Program(command) if event.line and not only_shows(command):  # each process may need its output
            return "started", command[:80]
        case events.Serve(port) if event.line:
            return "served", str(port)
        case events.Upload(to) if event.line:
            return "uploaded", to[:80]
        case events.Tracked(what) if event.line:
            return "begun", what[:80]
    return None


def _early_reads(job: Run) -> Iterator[Place]:
    """Yield files that a process reads before another one has surely written them: no collective is in between."""
    written: dict[str, tuple[int, int]] = {}
    reads: list[tuple[str, int, int, events.Event]] = []
    for number, rank in enumerate(job.ranks):
        calls = 0
        for event in rank.events:
            calls += isinstance(event, events.Called)
            if isinstance(event, events.Write) and event.line:
                for path in (event.path, *map(str, PurePosixPath(event.path).parents)):
                    written.setdefault(path, (number, calls))
            elif path := _looked_for(event):
                reads.append((path, number, calls, event))
    for path, number, calls, event in reads:
        by, after = written.get(path, (number, -1))
        if by != number and calls == after and not _OWN.search(path):
            line = (isinstance(event, events.End) and event.inner) or event.line
            yield Place(line, f"rank {number} reads {path}, which rank {by} writes, without waiting for it")


def _looked_for(event: events.Event) -> str:
    """Return the path that an event reads, or that is missing for it; "" for other events."""
    path = ""
    match event:
        case events.Read(path):
            pass
        case events.Need("files", name) if event.line:
            path = name
        case events.End(error="FileNotFoundError", message=message) if lacks := re.search(r"'([^']+)'", message):
            path = lacks[1]
    return path.rstrip("/").removeprefix("./")


def main_process_goes_on(both: Both) -> Answer:
    """Check that the other processes have no outside effect after the last training, and nothing outlives the job."""
    places = []
    for number, rank in enumerate(both.job.ranks[1:], start=1):
        story = rank.events
        last = max((i for i, event in enumerate(story) if isinstance(event, events.Trained)), default=len(story))
        for event in story[last:]:
            if (what := _outside(event)) and not (isinstance(event, events.Write) and event.helper):
                places.append(Place(event.line, f"rank {number}: {what[1]} is {what[0]} after training"))
    for who, rank in both.everyone():
        things = [thing for left in rank.seen(events.Left) for thing in (*left.threads, *left.programs)]
        places += [Place(line, f"{who} leaves {name} running") for name, line in things]
    places += [Place(None, f"{name} outlives the job") for name in (*both.alone.left, *both.job.left)]
    if places:
        return _fault("no", *places)
    if not both.ended:
        return _unknown("not reached")
    if any(left.group for rank in both.job.ranks for left in rank.seen(events.Left)):
        return _note("the process group is never closed: torch.distributed.destroy_process_group()")
    return _good("yes, and nothing is left running")


def own_device(both: Both) -> Answer:
    """Check that no code that several processes reach spreads a model over the GPUs of other processes."""
    others = [end_of(rank).line or math.inf for rank in both.job.ranks[1:]]
    last = max(others, default=math.inf)  # the last line that another process reaches
    places = [Place(line, text) for line, text in both.plan.spread if line <= last]
    return _fault("no", *places) if places else _good("yes")


QUESTIONS: Sequence[tuple[str, Callable[[Both], Answer]]] = (
    ("reaches its end", reaches_its_end),
    ("no process waits forever", waits_for_ever),
    ("same collective calls, in the same order", same_calls),
    ("same global batch, same rows", same_rows),
    ("same losses and gradient norms", same_losses),
    ("all ranks hold the same weights at the end", same_weights),
    ("rewards agree", rewards_agree),
    ("each file, program and service is used by one process", one_writer),
    ("each process has its own GPU", own_device),
    ("after training only the main process continues", main_process_goes_on),
)
