"""Format a verdict as text for a terminal, and as JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from nb2ddp.rehearsal.evidence import Code, Place, end_of
from nb2ddp.rehearsal.obstacle import in_a_line
from nb2ddp.rehearsal.plan import Plan
from nb2ddp.rehearsal.questions import State
from nb2ddp.rehearsal.verdict import Row, Verdict
from nb2ddp.versions import version_text

_MOST = 6  # lines of the script that are shown for one fault
_ORIGINS = {"hub": "real, scaled down", "cache": "real, from the cache, scaled down", "stand-in": "a stand-in"}
_MARKS = {State.GOOD: "✓", State.NOTE: "·", State.FAULT: "✗", State.UNKNOWN: "?"}


def headline(verdict: Verdict) -> str:
    """Return the verdict in one line."""
    count = len(verdict.job.ranks)
    many = f"{count} processes" if count > 1 else "one process"
    if verdict.obstacle:
        return f"could not be rehearsed: {verdict.obstacle.text.splitlines()[0]}"
    if verdict.faults and verdict.job is verdict.alone and (end := end_of(verdict.alone.ranks[0])).error:
        summary = f"{verdict.plan.place(end.inner)}: {in_a_line(verdict.plan, end)}"
        return f"even one process fails, which is the notebook's own fault: {summary}"
    if verdict.faults:
        return f"{len(verdict.faults)} of {len(verdict.rows)} questions show a fault with {many}"
    open_ones = sum(row.state is State.UNKNOWN for row in verdict.rows)
    if open_ones:
        return f"no fault seen, but {open_ones} of {len(verdict.rows)} questions have no answer"
    uneven = next((row.measured for row in verdict.rows for each in row.places if each.code is Code.UNEVEN), "")
    alike = f"{many} train as one does" + (f" but for the batch ({uneven})" if uneven else "")
    if verdict.passed:
        first = verdict.passed[0]
        more = f" and {len(verdict.passed) - 1} more lines" if len(verdict.passed) > 1 else ""
        return f"{alike}; not rehearsed: {verdict.plan.place(first.line)}{more}: {first.text}"
    return f"ready but for the batch: {uneven}" if uneven else f"ready: {alike}"


def text_lines(verdict: Verdict) -> Iterator[str]:
    """Yield the verdict as text: one line, the table of questions, and the lines of the script at fault."""
    plan = verdict.plan
    yield f"{plan.name}: {headline(verdict)}"
    yield from (f"  {line}" for line in _surroundings(plan))
    if verdict.obstacle and verdict.obstacle.line:
        yield f"  {plan.place(verdict.obstacle.line)}: {plan.source(verdict.obstacle.line)}"
    yield ""
    width = max(len(row.asked) for row in verdict.rows)
    for row in verdict.rows:
        yield f"  {_MARKS[row.state]} {row.asked:<{width}}  {row.measured}"
        if row.state is State.FAULT:
            yield from _where(verdict, row)
    yield ""
    yield from (f"  {line}" for line in _needs(verdict))
    yield from (f"  {note}" for note in (*plan.environment.notes, *verdict.notes))


def _surroundings(plan: Plan) -> Iterator[str]:
    """Yield the kind of Unsloth, the environment with its versions, and other versions that the notebook asks for."""
    where = plan.environment
    unsloth = {"real": "Unsloth's own CPU backend, ", "stand-in": "A stand-in for Unsloth on transformers and PEFT, "}
    summary = f"{unsloth.get(plan.unsloth, '')}in {where.name}: {version_text(where.versions)}"
    yield summary[0].upper() + summary[1:]
    if plan.other_versions and not where.is_notebooks:
        yield f"The notebook asks for {', '.join(plan.other_versions)}: rehearse with --versions notebook"


def _needs(verdict: Verdict) -> Iterator[str]:
    """Yield a line for each kind of need of the script, with the origin of each model and data set."""
    for kind, names in verdict.needs.items():
        known = (f"{name} ({_ORIGINS[verdict.origins[name]]})" if name in verdict.origins else name for name in names)
        yield f"{kind}: {', '.join(known)}"


def _where(verdict: Verdict, row: Row) -> Iterator[str]:
    """Yield each line of the script with this fault once, and the message about it."""
    by_line: dict[int | None, list[str]] = {}
    for place in row.places:
        by_line.setdefault(place.line, []).append(place.text.splitlines()[0])
    for line, texts in list(by_line.items())[:_MOST]:
        more = f" (and {len(texts) - 1} more)" if len(texts) > 1 else ""
        yield f"      {verdict.plan.place(line)}: {texts[0]}{more}"
        if source := verdict.plan.source(line):
            yield f"          {source[:110]}"
    if len(by_line) > _MOST:
        yield f"      and {len(by_line) - _MOST} more lines"


def as_data(verdict: Verdict) -> dict[str, Any]:
    """Return the verdict as data for JSON."""

    def place(each: Place) -> dict[str, Any]:
        return {"line": each.line, "place": verdict.plan.place(each.line), "text": each.text}

    return {
        "script": verdict.plan.name,
        "code": verdict.code,
        "verdict": headline(verdict),
        "processes": len(verdict.job.ranks),
        "unsloth": verdict.plan.unsloth,
        "environment": {"name": verdict.plan.environment.name, "versions": dict(verdict.plan.environment.versions)},
        "other_versions": list(verdict.plan.other_versions),
        "obstacle": place(verdict.obstacle) if verdict.obstacle else None,
        "questions": [
            vars(row) | {"state": row.state.value, "places": [place(each) for each in row.places]}
            for row in verdict.rows
        ],
        "passed": [place(each) for each in verdict.passed],
        "origins": dict(verdict.origins),
        "needs": {kind: list(names) for kind, names in verdict.needs.items()},
        "notes": list(verdict.notes),
        "seconds": [round(verdict.alone.seconds, 1), round(verdict.job.seconds, 1)],
    }


def as_json(verdict: Verdict) -> str:
    """Return the verdict as JSON."""
    return json.dumps(as_data(verdict), indent=2, ensure_ascii=False)
