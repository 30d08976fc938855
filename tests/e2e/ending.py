"""End a job early and start it again, to check that scripts written with `--resume` continue the training."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import pytest

from nb2ddp.rehearsal.plan import Plan
from nb2ddp.rehearsal.rehearse import Options, laid_out
from nb2ddp.rehearsal.run import Run
from nb2ddp.rehearsal.stage.events import Logged, Train

#: The line in the setup block of a resuming script that adds the callback to save the training.
_SAVES = "    trainer.add_callback(SaveByTime(training, minutes))\n"
#: Its replacement: it saves the training at each step, and the process may end before that.
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
    """An early end of one process of a job, or of all.

    Attributes:
        signal: "SIGKILL" or "SIGTERM".
        event: "step" (at the end of a step) or "saved" (a checkpoint is written, but not yet marked as complete).
        step: the step of the first training.
        rank: the rank of the process that gets the signal; -1 for all.
        processes: the number of processes of the job until then.
    """

    signal: str
    event: str
    step: int
    rank: int
    processes: int


def goes_on(plan: Plan, ends: Sequence[End], options: Options, whole: Run) -> None:
    """Check that a job that is ended early and started again in the same folder trains like an uninterrupted one.

    Args:
        plan: the plan of a script that resumes.
        ends: the end of each run except the last.
        options: the options of the rehearsal.
        whole: an uninterrupted run.
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
    assert len(logged([last])) < len(expected), "the last run starts from the beginning"
    assert found.keys() == expected.keys()
    for key, values in found.items():
        norm, others = values.pop("grad_norm"), expected[key]
        assert norm == pytest.approx(others.pop("grad_norm"), rel=1e-3)  # GRPO's is rounded differently
        assert values == pytest.approx(others, rel=1e-6, abs=1e-6)


def logged(runs: Sequence[Run]) -> dict[tuple[int, int], dict[str, float]]:
    """Return the values, except times, that the main process logged last for each step of each training."""
    found: dict[tuple[int, int], dict[str, float]] = {}
    for run in runs:
        number = 0
        for event in run.ranks[0].events:
            number += isinstance(event, Train)
            if isinstance(event, Logged) and "loss" in event.values:
                found[number, event.step] = {name: event.values.get(name, 0.0) for name in _VALUES}
    return found
