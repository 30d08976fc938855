"""End a job before its time and start it again, for scripts written with `--resume`: does the training go on?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import pytest

from nb2ddp.rehearsal.plan import Plan
from nb2ddp.rehearsal.rehearse import Options, laid_out
from nb2ddp.rehearsal.run import Run
from nb2ddp.rehearsal.stage.events import Logged, Train

#: In the setup block of a script that goes on: where a training gets what saves it.
_SAVES = "    trainer.add_callback(SaveByTime(training, minutes))\n"
#: In its place: it is saved at each step, and before that the process may end.
_ENDS = """
    class EndsEarly(TrainerCallback):
        def on_step_end(self, args, state, control, **_):
            self.end("step", state.global_step)

        def on_save(self, args, state, control, **_):
            self.end("saved", state.global_step)

        def end(self, event, step):
            if number == 1 and (event, step) == {at!r} and {rank} in (-1, int(os.environ.get("RANK", 0))):
                signal.raise_signal(signal.{signal})

    trainer.add_callback(EndsEarly())
    trainer.add_callback(SaveByTime(training, 0))
"""
_VALUES = ("loss", "grad_norm", "learning_rate", "reward")


@dataclass(frozen=True)
class End:
    """An end that comes too early.

    Attributes:
        signal: "SIGKILL" or "SIGTERM".
        event: "step" (at its end) or "saved" (a checkpoint is written, and not yet marked as whole).
        step: of the first training.
        rank: whose process gets it; -1 for all.
        processes: of the job until then.
    """

    signal: str
    event: str
    step: int
    rank: int
    processes: int


def goes_on(plan: Plan, ends: Sequence[End], options: Options, whole: Run) -> None:
    """Check that a job which is ended early and started again, in one folder, trains as one that nobody ended.

    Args:
        plan: a script that goes on.
        ends: how each start of it ends, but for the last.
        options: of the rehearsal.
        whole: a run that nobody has ended.
    """
    assert plan.text.count(_SAVES) == 1
    runs = []
    with laid_out(plan, options) as job:
        for number, end in enumerate([*ends, None], start=1):
            at, rank, by = ((end.event, end.step), end.rank, end.signal) if end else ((), -1, "SIGKILL")
            script = replace(plan, text=plan.text.replace(_SAVES, _ENDS.format(at=at, rank=rank, signal=by)))
            folder = job.root / f"start-{number}"
            if number > 1:
                folder.mkdir()
                (job.root / f"start-{number - 1}" / "work").rename(folder / "work")
            runs.append(job.run(script, folder, folder.name, end.processes if end else 0))
    for end, run in zip(ends, runs, strict=False):
        codes = [rank.code for rank in run.ranks]
        assert set(codes) == {143} if end.signal == "SIGTERM" else any(codes), (end, codes)
    last = runs[-1]
    assert not last.stopped
    assert [rank.code for rank in last.ranks] == [0] * len(last.ranks), last.ranks[0].stderr
    expected, found = logged([whole]), logged(runs)
    assert len(logged([last])) < len(expected), "it begins anew"
    assert found.keys() == expected.keys()
    for key, values in found.items():
        norm, others = values.pop("grad_norm"), expected[key]
        assert norm == pytest.approx(others.pop("grad_norm"), rel=1e-3)  # of GRPO's is rounded apart
        assert values == pytest.approx(others, rel=1e-6, abs=1e-6)


def logged(runs: Sequence[Run]) -> dict[tuple[int, int], dict[str, float]]:
    """What the main process logged of each step of each training, the last time that it came to it, but for times."""
    found: dict[tuple[int, int], dict[str, float]] = {}
    for run in runs:
        number = 0
        for event in run.ranks[0].events:
            number += isinstance(event, Train)
            if isinstance(event, Logged) and "loss" in event.values:
                found[number, event.step] = {name: event.values.get(name, 0.0) for name in _VALUES}
    return found
