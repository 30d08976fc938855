"""The verdict of a rehearsal: the answers to its questions, and why a script could not be rehearsed."""

from __future__ import annotations

import json
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from nb2ddp.rehearsal import report
from nb2ddp.rehearsal.evidence import Place
from nb2ddp.rehearsal.plan import Plan
from nb2ddp.rehearsal.questions import State
from nb2ddp.rehearsal.run import Rank, Run, Started
from nb2ddp.rehearsal.stage.events import Event, read
from nb2ddp.rehearsal.verdict import Row, Verdict, judge

from .e2e.faults import AFTER, CALLS, DEVICE, ENDS, LOSSES, REWARDS, ROWS, WAITS, WEIGHTS, WRITER

PLAN = Plan("train.py", "import x\ntrainer.train()\nmodel.save()\n", Path(), ("Trainer",), "", (), {}, ())


def event(kind: str, line: int | None = 2, **about: Any) -> Event:
    return read({"kind": kind, "line": line, **about})


def trained(names: str, *, loss: float = 1.0, weights: str = "w", **about: Any) -> list[Event]:
    """Return the events of a training on rows, each given by a name. A slash separates steps."""
    steps = [step.split() for step in names.split("/")]
    events = [event("Train", **{"samples": len(steps[0]), **about})]
    for number, step in enumerate(steps, start=1):
        values = {"loss": loss, "grad_norm": 1.0}
        events += [event("Rows", rows=step), event("Step"), event("Logged", step=number, values=values)]
    return [*events, event("Trained", weights=weights)]


def rank(*events: Event) -> Rank:
    return Rank(0, (*events, event("End", code=0), event("Left")), "", "")


def each(*ranks: str, **about: Any) -> list[Rank]:
    """Return processes that train in the same way, each on its own rows."""
    return [rank(*trained(rows, **about)) for rows in ranks]


def failed(error: str = "", message: str = "", *before: Event, stderr: str = "", **about: Any) -> Rank:
    """Return a process that an exception has ended."""
    end = [event("End", **{"code": 1, "inner": 1, "error": error, "message": message, **about})] if error else []
    return Rank(1, (*before, *end), "", stderr)


def verdict(alone: Rank, *ranks: Rank, plan: Plan = PLAN, stopped: str = "", **more: Any) -> Verdict:
    """Return the verdict on one process and several, or on one that has already failed."""
    one, several = Run((alone,), 10.0, ""), Run(ranks, 300.0, stopped)
    return judge(plan, one, several if ranks else one, **more)


def trains(*events: Event, **more: Any) -> Verdict:
    """Return the verdict on processes that train as one process does. That process also has the given events."""
    return verdict(rank(*TWO, *events), *each("a", "b"), **more)


def answers(judged: Verdict) -> dict[str, Row]:
    return {row.asked: row for row in judged.rows}


def written(row: Row) -> str:
    """Return the state and the text of an answer, and each place after its line."""
    return "; ".join((row.state.value, row.measured, *(f"{place.line}: {place.text}" for place in row.places)))


def test_good_runs_are_ready() -> None:
    judged = verdict(rank(*trained("a b / c d")), *each("a / c", "b / d"))
    assert [row.state for row in judged.rows] == [State.GOOD] * len(judged.rows)
    assert judged.code == 0
    assert next(report.text_lines(judged)) == "train.py: ready: 2 processes train as one does"


TWO, ODD, LABELLED = trained("a b"), trained("a b c"), trained("a:x b:y")
WRITES, BELOW = event("Write", 3, path="a.json"), event("Write", 3, path="rows/train/a.arrow")
READS = event("Read", 2, path="a.json")
WAITS_FOR = [event("Call", name="barrier"), event("Called", name="barrier")]
CALLED = [event("Call", 3, name="barrier"), event("Called", name="barrier")]
REDUCED = [event("Call", 4, name="all_reduce", size=1), event("Called", name="all_reduce")]
NEEDS = event("Need", 2, what="files", name="rows", made=True)
LACKS = event("End", 2, code=1, inner=4, error="FileNotFoundError", message="Unable to find 'rows'")
BEGUN = event("Tracked", 3, what="a run of wandb")
EARLY = "fault; no: 1 shared; {}: rank 1 reads {}, which rank 0 writes, without waiting for it"


def arguments(rate: str, folder: str, rows: str = "a b") -> list[Event]:
    return [event("Arguments", schedule={"learning_rate": rate}, folder=folder), *trained(rows)]


GONE = failed("RuntimeError", "Connection closed by peer")
STOPPED = Rank(None, (event("Step", 4), event("Left", None)), "", "")
PARTS = "fault; ranks 0 and 1 differ at call 1; 3: rank 0 calls barrier; 4: rank 1 "


def reward(value: float) -> Rank:
    return rank(event("Reward", name="r", keys=["k"], values=[value], at=1))


def programs(command: str) -> list[Rank]:
    return [rank(event("Program", 3, command=command))] * 2


#: For each question: the events of one process, several processes, and the answer.
ANSWERS = [
    (ROWS, TWO, each("a b", "c d"), "fault; 2 samples in one process, 4 in 2; 2: step 1"),
    (ROWS, TWO, each("a", "a"), "fault; 2 samples, but only 1 distinct ones; one process has 2; 2: "),
    (ROWS, TWO, each("a", "z"), "fault; only 1 of 2 samples are the same as in one process; 2: "),
    (ROWS, LABELLED, each("a:x", "b:y"), "good; 2 samples a step"),
    (ROWS, LABELLED, each("a:x", "b:x"), "fault; 1 of 2 samples have different labels in one process; 2: "),
    (ROWS, ODD, each("a b", "c d"), "note; 3 samples in one process, 4 in 2: no exact split; 2: "),
    (ROWS, ODD, each("a b c", "d e f"), "fault; 3 samples in one process, 6 in 2; 2: "),
    (ROWS, trained("a b c d / e", epoch=5), each("a b / e a", "c d / b c"), "note; an epoch ends in step 2"),
    (ROWS, trained("a b c d / e", epoch=8), each("a b / e a", "c d / b c"), "fault; 1 sample in one process"),
    (ROWS, trained("a b", grouped=True), each("a", "z"), "note; only 1 of 2"),
    (ROWS, trained("a b", grouped=True), each("a", "a"), "fault; 2 samples, but only 1"),
    (ROWS, arguments("1", "o"), [rank(*arguments("1", "p", row)) for row in "ab"], "good; "),
    (
        ROWS,
        arguments("1", "o"),
        [rank(*arguments(rate, "o")) for rate in "12"],
        "; 2: learning_rate is 1 in one process, 2 in 2",
    ),
    (
        ROWS,
        arguments("1", "o"),
        [rank(*arguments("1", name)) for name in "op"],
        "; 2: output_dir is o on rank 0, p on 1",
    ),
    (LOSSES, TWO, each("a", "b", loss=1.5), "fault; loss 1.0000 in one process, 1.5000 in 2"),
    (LOSSES, TWO, each("x", "y", loss=1.5), "note; loss 1.0000 in one process, 1.5000 in 2"),
    (LOSSES, TWO, each("a", "b", loss=1.01), "fault; loss 1.0000 in one process, 1.0100 in 2"),
    (LOSSES, [event("Precision", value=2**-7), *TWO], each("a", "b", loss=1.01), "good; losses within 1e-02"),
    (LOSSES, [event("Precision", value=2**-7), *TWO], each("a", "b", loss=1.02), "fault; loss 1.0000 in one process"),
    (WEIGHTS, TWO, [*each("a", weights="v"), *each("b")], "fault; no: rank 0 v, rank 1 w; 2: after training 1"),
    (
        CALLS,
        [],
        [rank(*CALLED), rank(*REDUCED)],
        "fault; ranks 0 and 1 differ at call 1; 3: rank 0 calls barrier; 4: rank 1 calls all_reduce",
    ),
    (
        CALLS,
        [],
        [rank(*CALLED), Rank(None, (event("Step", 4), event("Left", None)), "", "")],
        "; 3: rank 0 calls barrier; 4: rank 1 makes no further call",
    ),
    (CALLS, [], [rank(*CALLED), failed("KeyError", "x")], "good; 1 calls"),
    (WRITER, [], [rank(WRITES)] * 2, "fault; no: 1 shared; 3: a.json is written by ranks 0, 1"),
    (WRITER, [], [rank(WRITES), rank(READS)], EARLY.format(2, "a.json")),
    (WRITER, [], [rank(WRITES, *WAITS_FOR), rank(*WAITS_FOR, READS)], "good; "),
    (WRITER, [], [rank(BELOW), rank(NEEDS)], EARLY.format(2, "rows")),
    (WRITER, [], [rank(BELOW), rank(LACKS)], EARLY.format(4, "rows")),
    (WRITER, [], [rank(*WAITS_FOR, BELOW), rank(NEEDS)], "good; "),
    (WRITER, [], [rank(*WAITS_FOR, BELOW), rank(LACKS)], "good; "),
    (WRITER, [], [rank(BEGUN)] * 2, "fault; no: 1 shared; 3: a run of wandb is begun by ranks 0, 1"),
    (WRITER, [], programs("python make.py"), "fault; no: 1 shared; 3: python make.py is started by ranks 0, 1"),
    (WRITER, [], programs("nvidia-smi"), "good; "),
    (WRITER, [], programs("bash -c 'source /etc/proxy && env | grep -i proxy'"), "good; "),
    (REWARDS, [], [reward(1.0), reward(1.0)], "good; 2 rewards of 1 completions"),
    (
        REWARDS,
        [],
        [reward(1.0), reward(2.0)],
        "fault; no; 1: r gives the same completion 1.0 in rank 0 and 2.0 in rank 1",
    ),
    (
        ENDS,
        [],
        [GONE, failed("KeyError", "a")],
        "fault; no; 1: rank 1: KeyError: a",
    ),
    (
        ENDS,
        [],
        [failed("RuntimeError", "Connection closed by peer"), rank()],
        "; 1: rank 0: RuntimeError: Connection closed by peer; 2: rank 1 ended early, with code 0",
    ),
]


@pytest.mark.parametrize(("asked", "alone", "ranks", "answer"), ANSWERS)
def test_answers(asked: str, alone: list[Event], ranks: list[Rank], answer: str) -> None:
    assert answer in written(answers(verdict(rank(*alone), *ranks))[asked])


@pytest.mark.parametrize(
    ("again", "prepared", "state"), [("y z", "pp", State.NOTE), ("a b", "pp", State.FAULT), ("y z", "pq", State.FAULT)]
)
def test_rows_may_be_others_each_time(again: str, prepared: str, state: State) -> None:
    """This applies if one process has other rows in its second run, and all processes of the job prepared the same."""
    ranks = [rank(*trained(row, rows=name)) for row, name in zip("cd", prepared, strict=True)]
    assert verdict(rank(*TWO), *ranks).has_other_rows
    judged = verdict(rank(*TWO), *ranks, again=Run((rank(*trained(again)),), 1.0, ""))
    assert answers(judged)[ROWS].state is state
    assert judged.code == (state is State.FAULT)


def test_a_batch_that_cannot_be_divided_is_no_fault() -> None:
    judged = verdict(rank(*ODD), *each("a b", "c d"))
    assert judged.code == 0
    assert report.headline(judged) == "ready but for the batch: 3 samples in one process, 4 in 2: no exact split"


def test_who_waits_where() -> None:
    waiting = Rank(None, tuple(CALLED[:1]), "", "")
    found = answers(verdict(rank(), waiting, rank(), stopped="waiting"))[WAITS]
    assert written(found) == ("fault; every process waits; 3: rank 0 waits in barrier; 2: rank 1 has ended with code 0")


def test_a_fixed_gpu_is_a_fault_where_more_than_the_main_process_come() -> None:
    plan = replace(PLAN, spread=((3, '"cuda:0" is the first GPU in every process'),))
    for line, state in ((2, State.GOOD), (None, State.FAULT)):
        others = Rank(0, (event("End", line, code=0),), "", "")
        assert answers(verdict(rank(), rank(), others, plan=plan))[DEVICE].state is state


def test_a_thread_that_stays_is_named_where_it_was_started() -> None:
    left = Rank(None, (event("Left", threads=[["poller", 3]]),), "", "")
    assert written(answers(verdict(left, rank(), rank()))[AFTER]) == "fault; no; 3: one process leaves poller running"


def test_what_is_evaluated_is_compared() -> None:
    def evaluated(*rows: str) -> list[Rank]:
        return [rank(*trained(row), event("OtherRows", rows=[*own])) for row, own in zip(("a", "b"), rows, strict=True)]

    alone, message = (
        rank(*TWO, event("OtherRows", rows=["x", "y", "z"])),
        "3 rows are evaluated in one process, 2 of these in 2",
    )
    assert answers(verdict(alone, *evaluated("xy", "zx")))[LOSSES].state is State.GOOD
    assert f"fault; {message}; 2: " in written(answers(verdict(alone, *evaluated("x", "y")))[LOSSES])
    plan = replace(PLAN, text=f"{PLAN.text}args(dataloader_drop_last = True)\n")
    dropped = answers(verdict(alone, *evaluated("x", "y"), plan=plan))[LOSSES]
    assert written(dropped) == f"note; {message}: rows that do not fill a batch of all processes are dropped"


def test_a_message_of_a_run_does_not_name_its_folder(tmp_path: Path) -> None:
    folder = tmp_path / "2-processes"
    (folder / "logs").mkdir(parents=True)
    message = f"No {folder}/work/rows.csv in {folder}/work, {folder}/tmp/a, {folder}/home/.cache or {tmp_path}/hub"
    (folder / "logs" / "0.err").write_text(message)
    job: Any = subprocess.Popen(["true"], start_new_session=True)
    (ended,) = Started([job], folder / "logs").ended(9, lambda _: None).ranks
    assert ended.stderr == f"No rows.csv in ., /tmp/a, ~/.cache or {tmp_path}/hub"


#: One process has trained, and so has one of two others. The verdict depends on how the last one ends.
ONE_HAS_ENDED = (rank(*trained("a / b")), rank(*trained("a")))
MADE = event("Made", name="me/rows")
CLONE = event("Clone", address="https://x/OuteTTS", folder="OuteTTS", there=False)
ABSENT = (*(event("StandIn", name=name, package=True) for name in ("outetts", "whisper", "gdown")), CLONE, MADE)


@pytest.mark.parametrize(
    ("ranks", "code", "message"),
    [
        ([failed("NameError", "x")], 1, "the notebook's own fault: train.py:1: NameError: x"),
        ([failed("UnboundLocalError", "x")], 1, "even one process fails"),
        ([failed("KeyError", "x")], 2, "1: KeyError: x"),
        ([failed("TypeError", "x")], 2, "1: TypeError: x"),
        ([*ONE_HAS_ENDED, failed("KeyError", "x")], 1, " questions show a fault with 2 processes"),
        (
            [*ONE_HAS_ENDED, failed("ValueError", "x", inner=3, ours=True)],
            2,
            "3: ValueError: x; an error of nb2ddp rehearse, not of the script: please report it",
        ),
        (
            [*ONE_HAS_ENDED, failed("MaxRetryError", "x", inner=3, host="a.b", refused=True)],
            2,
            "3: MaxRetryError; --trust lets it reach a.b",
        ),
        (
            [failed("", stderr="MemoryError: no more\nLoading:  50%|##  | 4/9\rLoading: 100%|####| 9/9")],
            2,
            "MemoryError: no more",
        ),
        ([failed("", stderr="Traceback\nKeyError: 'steps'\n")], 2, "not of the script: KeyError: 'steps'"),
        ([rank(), rank(), rank()], 2, "no training began"),
    ],
)
def test_what_ends_a_process(ranks: list[Rank], code: int, message: str) -> None:
    judged = verdict(*ranks)
    found = judged.obstacle
    assert judged.code == code
    assert message in (f"{found.line}: {found.text}" if found else report.headline(judged))


def test_what_takes_too_long_is_an_obstacle() -> None:
    late = Rank(1, (), "", "Loading weights: 100%|####| 9/9")
    alone, job = ONE_HAS_ENDED[0], (Rank(None, (event("Call", 2, name="reward"),), "", ""), late)
    assert verdict(alone, *job, stopped="limit").obstacle == Place(2, "it took longer than 300 s as 2 processes")
    run = Run(job[:1], 300.0, "limit")
    assert judge(PLAN, run, run).obstacle == Place(2, "it took longer than 300 s as one process")


def test_a_stand_in_that_could_not_be_made_is_named() -> None:
    loads = {("models", "me/odd"): "it is too odd", ("models", "me/good"): ""}
    assert verdict(failed("OSError", "x"), loads=loads).obstacle == Place(1, "no stand-in for me/odd: it is too odd")


@pytest.mark.parametrize(
    ("process", "advice"),
    [
        (failed("ModuleNotFoundError", "No module named 'x'"), "pip install x"),
        (failed("KeyError", "x", MADE), "--data FILE"),
        (
            failed("StopIteration", "", MADE),
            ": it takes the first of some rows, and there are none; --data FILE",
        ),
        (
            failed("TypeError", "No module named 'jiwer'", event("StandIn", name="jiwer", package=True)),
            "pip install jiwer",
        ),
        (
            failed("TypeError", "No module named 'rows'", event("StandIn", name="rows", package=True)),
            "; put rows.py beside",
        ),
        (failed("OSError", "OuteTTS", CLONE), "or --trust"),
        (failed("TypeError", "f() got an unexpected keyword argument 'z'", MADE), "change this line"),
        (failed("ConnectionError", "(host='a.b', port=1)"), "--trust lets it reach a.b"),
        (failed("ImportError", "cannot import name 'X' from 'trl'"), "--versions notebook"),
        (failed("TypeError", "f() got an unexpected keyword argument 'x'"), "--versions notebook"),
        (failed("FileNotFoundError", "No such file or directory: 'rows.zip'"), "put rows.zip beside the script"),
        (failed("OSError", "liba.so.1: cannot open shared object file"), "install the system library liba"),
        # Another version may accept what a library refuses.
        (failed("ValueError", "x", MADE, library="trl"), "--versions notebook"),
        (failed("TypeError", "x", MADE), "--versions notebook"),
        (failed("KeyError", "x", MADE, library="trl"), "--data"),
        (failed("ValueError", "x", MADE), "--data"),
        # What is absent is named if the failure depends on it.
        (failed("StopIteration", "", *ABSENT, rests=["outetts"]), "git clone https://x/OuteTTS OuteTTS"),
        (failed("StopIteration", "", *ABSENT, rests=["whisper"]), "pip install openai-whisper, or"),
        (failed("StopIteration", "", *ABSENT, rests=["datasets"]), "--data FILE"),
        (failed("StopIteration", "no folder OuteTTS/x", *ABSENT, rests=[]), "git clone https://x/OuteTTS OuteTTS"),
        (
            failed("ValueError", "searched " * 90, event("Asked", name="/r/qwen"), raised=True),
            "; put qwen beside the script",
        ),
    ],
)
def test_an_obstacle_says_what_to_give(process: Rank, advice: str) -> None:
    text = f"{PLAN.text}# rows.py holds what makes them\n"
    plan = replace(PLAN, text=text, other_versions=("trl<1",) * ("--" in advice))
    judged = verdict(process, plan=plan)
    headline = report.headline(judged)
    assert judged.code == 2
    assert advice in headline
    assert "gdown" not in headline
    assert len(headline) < 250


def test_what_is_beyond_a_rehearsal_is_named() -> None:
    plan = replace(PLAN, text="from snac import SNAC\nmodel = load('a', trust_remote_code = True)\n")
    message = "not rehearsed: code of a model's repository (trust_remote_code), audio codecs (TypeError: no infer)"
    assert report.headline(verdict(failed("TypeError", "no infer"), plan=plan)) == f"could not be rehearsed: {message}"
    assert report.headline(trains(plan=plan)) == "ready: 2 processes train as one does"


def test_it_is_ready_but_for_a_cell() -> None:
    judged = trains(event("Passed", 3, error="KeyError", message="'x'", after=True, own=False))
    assert judged.code == 3
    assert report.headline(judged) == "2 processes train as one does; not rehearsed: train.py:3: KeyError: 'x'"


def test_a_name_that_nothing_binds_is_a_fault_after_training_too() -> None:
    judged = trains(event("Passed", 3, error="NameError", message="x", after=True, own=True))
    assert (judged.code, judged.passed) == (1, ())
    assert judged.faults[0].places == (Place(3, "the notebook's own fault: NameError: x"),)


def test_what_is_real_is_said() -> None:
    loads = {("models", "me/a"): "", ("models", "me/b"): "", ("datasets", "me/c"): ""}
    origins = {"me/a": "hub", "me/b": "cache", "me/c": "stand-in"}
    judged = trains(loads=loads, origins=origins)
    assert (
        "  models: me/a (real, scaled down), me/b (real, from the cache, scaled down)\n  data sets: me/c (a stand-in)"
    ) in "\n".join(report.text_lines(judged))
    assert json.loads(report.as_json(judged))["origins"] == origins


def test_json_tells_the_same() -> None:
    judged = verdict(rank(*TWO), *(rank(*trained(row), WRITES) for row in "ab"))
    parsed = json.loads(report.as_json(judged))
    assert parsed["code"] == judged.code == 1
    assert [row["asked"] for row in parsed["questions"] if row["state"] == "fault"] == [WRITER, AFTER]
