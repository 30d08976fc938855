"""The rehearsal's question of scripts that go on: ended early and started again, do they train as one that was not?"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from nb2ddp.convert import convert_source
from nb2ddp.options import Options
from nb2ddp.rehearsal.ending import End, ends, goes_on, started_again
from nb2ddp.rehearsal.plan import Plan
from nb2ddp.rehearsal.questions import State, losses
from nb2ddp.rehearsal.run import Rank, Run
from nb2ddp.rehearsal.verdict import judge
from tests.notebooks import text

PLAN = Plan("train.py", "trainer.train()\n", Path(), ("Trainer",), "", (), {}, ())


def run(steps: dict[int, float], code: int = 0) -> Run:
    """A run of one process that logged these losses in its first training."""
    logged = tuple({"kind": "log", "line": 1, "step": step, "values": {"loss": loss}} for step, loss in steps.items())
    return Run((Rank(code, ({"kind": "train", "line": 1}, *logged), "", ""),), 1.0, "")


WHOLE = run({1: 3.0, 2: 2.0, 3: 1.0})
KILL = End("SIGKILL", "step", 2, 0)
KILLED, TOLD = run({1: 3.0}, -9), run({2: 2.0}, 143)


@pytest.mark.parametrize(
    ("again", "measured"),
    [
        ((KILLED, TOLD, run({3: 1.0})), "yes, after SIGKILL and SIGTERM: losses to 0e+00"),
        ((KILLED, TOLD, run({3: 1.1})), "other losses (by 1e-01)"),
        ((KILLED, TOLD, run({1: 3.0, 2: 2.0, 3: 1.0})), "no"),
        ((KILLED, TOLD, run({})), "no"),
        ((KILLED, run({2: 2.0}, -15), run({3: 1.0})), "no"),
        ((KILLED, TOLD, run({3: 1.0}, 1)), "no"),
        ((KILLED, KILLED, TOLD, run({3: 1.0})), "yes, after SIGKILL and SIGTERM: losses to 0e+00"),
        ((KILLED, run({2: 2.0}), TOLD, run({3: 1.0})), "no"),
    ],
)
def test_what_is_said_of_a_job_that_was_ended(again: tuple[Run, ...], measured: str) -> None:
    *kills, told, last = again
    early = [*(("SIGKILL", each) for each in kills), ("SIGTERM", told), ("", last)]
    row = judge(PLAN, WHOLE, WHOLE, again=early).rows[-1]
    assert (row.asked, row.measured) == ("killed and started again, it goes on", measured)
    assert (row.state is State.GOOD) == measured.startswith("yes")


def test_other_scripts_are_not_asked() -> None:
    assert len(judge(PLAN, WHOLE, WHOLE).rows) == 10


def test_only_scripts_that_go_on_are_ended() -> None:
    for resume in (False, True):
        script = convert_source(text(), options=Options(resume=resume)).files["train.py"]
        assert goes_on(replace(PLAN, text=script), 3) == resume
        assert not goes_on(replace(PLAN, text=script), 2)


def test_the_ends_follow_from_the_script() -> None:
    plans = [replace(PLAN, text=f"{number}") for number in range(50)]
    drawn = [ends(plan, 5, 2) for plan in plans]
    assert drawn == [ends(plan, 5, 2) for plan in plans]
    for each in drawn:
        assert [end.signal for end in each] == ["SIGKILL", "SIGKILL", "SIGKILL", "SIGTERM"]
        assert sorted(end.event for end in each) == ["saved", "step", "step", "step"]
        assert [end.step for end in each] == sorted(end.step for end in each)
        assert {-1, each[0].rank, each[1].rank, each[2].rank} & {0, 1}
    assert {end.step for each in drawn for end in each} == {2, 3, 4}
    assert {end.step for end in ends(PLAN, 3, 2)} == {2}


def test_the_starts_share_a_folder(tmp_path: Path) -> None:
    settings = []

    def start(plan: Plan, folder: Path, name: str, more: Mapping[str, object], processes: int) -> Run:
        settings.append((more["end"], processes))
        (folder / "work").mkdir(parents=True, exist_ok=True)
        with (folder / "work" / "seen").open("a") as seen:
            seen.write(f"{name}\n")
        return WHOLE

    planned = (KILL, replace(KILL, processes=4))
    assert [by for by, _ in started_again(PLAN, planned, tmp_path, start)] == ["SIGKILL", "SIGKILL", ""]
    assert (tmp_path / "start-3" / "work" / "seen").read_text().splitlines() == [f"start {n} of 3" for n in (1, 2, 3)]
    assert [(bool(end), processes) for end, processes in settings] == [(True, 0), (True, 4), (False, 0)]


def test_a_step_that_was_trained_twice_counts_as_it_was_the_last_time() -> None:
    assert losses([run({1: 3.0, 2: 9.0}), run({2: 2.0})]) == {(1, 1): 3.0, (1, 2): 2.0}
