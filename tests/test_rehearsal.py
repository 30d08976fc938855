"""Rehearsals without training: what a script says before it runs, the stand-in hub, and what makes a verdict."""

from __future__ import annotations

import ast
import json
import multiprocessing
import pickle
import random
import re
import socket
import subprocess
import tempfile
import threading
import time
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import replace
from importlib import metadata
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from click.testing import CliRunner

from nb2ddp.cli.main import main
from nb2ddp.cli.rehearse import _Progress, _script
from nb2ddp.project import links
from nb2ddp.rehearsal import report, run
from nb2ddp.rehearsal.evidence import Place
from nb2ddp.rehearsal.hub import DataHints, Hub, answering_server
from nb2ddp.rehearsal.plan import Plan, PlanError, read
from nb2ddp.rehearsal.processes import Process, Separate
from nb2ddp.rehearsal.questions import QUESTIONS, State
from nb2ddp.rehearsal.rehearse import _build, _folder
from nb2ddp.rehearsal.run import Rank, Run, environment, launched
from nb2ddp.rehearsal.stage import events, fast, files, learn, packages, shapes, versions
from nb2ddp.rehearsal.stage.attempts import Attempts, _changed, _needed, rests_on
from nb2ddp.rehearsal.stage.columns import columns, read_of_rows
from nb2ddp.rehearsal.stage.device import _load_on_cpu, told_to_script
from nb2ddp.rehearsal.stage.fast import _equipped, _make_no_gguf, _offered
from nb2ddp.rehearsal.stage.files import Sources, _select_what_is_there
from nb2ddp.rehearsal.stage.hooks import UnknownError, attribute
from nb2ddp.rehearsal.stage.log import Log
from nb2ddp.rehearsal.stage.outside import Outside
from nb2ddp.rehearsal.stage.play import _at_home
from nb2ddp.rehearsal.stage.schema import Schema
from nb2ddp.rehearsal.stage.shrink import shrunk
from nb2ddp.rehearsal.stage.training import _begin
from nb2ddp.rehearsal.verdict import Row, judge
from tests import rehearsals
from tests.notebook.test_marimo import TRAINING
from tests.notebooks import text as notebook

from .e2e.faults import FAULTS, FOLDER, GOOD, LOSSES

PLAN = Plan("train.py", "import x\ntrainer.train()\nmodel.save()\n", Path(), ("Trainer",), "", (), {}, ())


@pytest.fixture(autouse=True)
def _libraries(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every package is there: these tests run nothing."""
    monkeypatch.setattr("importlib.util.find_spec", lambda name: name)


def event(kind: str, line: int | None = 2, **about: Any) -> dict[str, Any]:
    return {"kind": kind, "line": line, **about}


def trained(
    rows: list[list[str]],
    loss: float = 1.0,
    weights: str = "w",
    *,
    epoch: int | None = None,
    grouped: bool = False,
    prepared: str = "",
) -> list[dict[str, Any]]:
    """The events of a training with these rows in each step."""
    begin = event("train", epoch=epoch, samples=len(rows[0]), grouped=grouped, rows=prepared)
    steps = [
        each
        for number, names in enumerate(rows, start=1)
        for each in (
            event("rows", rows=names),
            event("step", step=number),
            event("log", step=number, values={"loss": loss, "grad_norm": 1.0}),
        )
    ]
    return [begin, *steps, event("trained", weights=weights)]


def rank(*events: dict[str, Any], code: int | None = 0, said: str = "") -> Rank:
    last = [event("end", code=code), event("left", threads=[], programs=[], group=False)] if code is not None else []
    return Rank(code, (*events, *last), "", said)


def verdict_of(alone: Rank, *ranks: Rank, stopped: str = "") -> dict[str, Row]:
    judged = judge(PLAN, Run((alone,), 1.0, ""), Run(ranks, 1.0, stopped))
    return {row.asked: row for row in judged.rows}


@pytest.mark.parametrize("answer", [lambda: True, lambda: 2])
def test_libraries_see_no_gpu_where_the_script_does(answer: Callable[[], int]) -> None:
    asked_by_script, asked_by_library = (
        told_to_script(answer, cast("Log", SimpleNamespace(is_asked=lambda by=by: by))) for by in (True, False)
    )
    assert (asked_by_script(), asked_by_library()) == (answer(), 0)
    assert type(asked_by_library()) is type(answer())


def test_good_runs_are_ready() -> None:
    alone = rank(*trained([["a", "b"], ["c", "d"]]))
    ranks = [rank(*trained([[first], [second]])) for first, second in ("ac", "bd")]
    judged = judge(PLAN, Run((alone,), 1.0, ""), Run(tuple(ranks), 1.0, ""))
    assert [row.state for row in judged.rows] == [State.GOOD] * len(judged.rows)
    assert judged.code == 0
    assert next(report.text_lines(judged)) == "train.py: ready: 2 processes train as one does"


@pytest.mark.parametrize(
    ("ranks", "measured"),
    [
        ([[["a", "b"]], [["c", "d"]]], "2 samples in one process, 4 in 2"),
        ([[["a"]], [["a"]]], "2 samples, but 1 different ones where one process has 2"),
        ([[["a"]], [["z"]]], "only 1 of 2 samples are those of one process"),
    ],
)
def test_rows(ranks: list[list[list[str]]], measured: str) -> None:
    row = verdict_of(rank(*trained([["a", "b"]])), *(rank(*trained(each)) for each in ranks))
    found = row["same global batch, same rows"]
    assert (found.state, found.measured, found.places[0].line) == (State.FAULT, measured, 2)


@pytest.mark.parametrize(
    ("again", "prepared", "state"), [("yz", "pp", State.NOTE), ("ab", "pp", State.FAULT), ("yz", "pq", State.FAULT)]
)
def test_rows_may_be_others_each_time(again: str, prepared: str, state: State) -> None:
    """Where one process has other rows in its second run, and all processes of the job prepared the same."""
    alone, second = (Run((rank(*trained([[*rows]])),), 1.0, "") for rows in ("ab", again))
    ranks = [rank(*trained([[row]], prepared=name)) for row, name in zip("cd", prepared, strict=True)]
    job = Run(tuple(ranks), 1.0, "")
    assert judge(PLAN, alone, job).has_other_rows
    judged = judge(PLAN, alone, job, again=second)
    assert next(row.state for row in judged.rows if row.asked == "same global batch, same rows") is state
    assert judged.code == (state is State.FAULT)


def test_a_batch_that_cannot_be_divided_is_no_fault() -> None:
    alone = [["a", "b", "c"]]
    ranks = [rank(*trained([["a", "b"]])), rank(*trained([["c", "d"]]))]
    judged = judge(PLAN, Run((rank(*trained(alone)),), 1.0, ""), Run(tuple(ranks), 1.0, ""))
    said = "3 samples in one process, 4 in 2: no exact split"
    found = next(row for row in judged.rows if row.asked == "same global batch, same rows")
    assert (found.state, found.measured, judged.code) == (State.NOTE, said, 0)
    assert report.headline(judged) == f"ready but for the batch: {said}"
    ranks = [rank(*trained(alone)), rank(*trained([["d", "e", "f"]]))]
    assert verdict_of(rank(*trained(alone)), *ranks)["same global batch, same rows"].state is State.FAULT


@pytest.mark.parametrize(("epoch", "state"), [(5, State.NOTE), (8, State.FAULT)])
def test_the_end_of_an_epoch_is_no_fault(epoch: int, state: State) -> None:
    ranks = [rank(*trained([["a", "b"], ["e", "a"]])), rank(*trained([["c", "d"], ["b", "c"]]))]
    alone = rank(*trained([["a", "b", "c", "d"], ["e"]], epoch=epoch))
    found = verdict_of(alone, *ranks)["same global batch, same rows"]
    assert (found.state, found.measured.startswith("an epoch ends in step 2")) == (state, epoch == 5)


@pytest.mark.parametrize(
    ("grouped", "second", "state"),
    [(True, "z", State.NOTE), (True, "a", State.FAULT), (False, "z", State.FAULT)],
)
def test_rows_grouped_by_length_may_be_others(grouped: bool, second: str, state: State) -> None:
    alone = rank(*trained([["a", "b"]], grouped=grouped))
    ranks = [rank(*trained([[row]])) for row in ("a", second)]
    assert verdict_of(alone, *ranks)["same global batch, same rows"].state is state


def test_a_schedule_and_a_folder_are_those_of_one_process() -> None:
    def arguments(rate: str, folder: str) -> dict[str, Any]:
        return event("arguments", schedule={"learning_rate": rate}, folder=folder)

    def asked(*ranks: tuple[str, str]) -> Row:
        alone = rank(arguments("0.1", "outputs/a"), *trained([["a", "b"]]))
        several = (rank(arguments(*own), *trained([[row]])) for own, row in zip(ranks, "ab", strict=True))
        return verdict_of(alone, *several)["same global batch, same rows"]

    assert asked(("0.1", "outputs/b"), ("0.1", "outputs/b")).state is State.GOOD
    assert asked(("0.1", "o"), ("0.2", "o")).measured == "learning_rate is 0.1 in one process, 0.2 in 2"
    assert asked(("0.1", "o"), ("0.1", "p")).measured == "output_dir is o on rank 0, p on 1"


def test_losses_are_compared_where_the_rows_are_the_same() -> None:
    name = "losses and gradient norms of one process"
    alone = rank(*trained([["a", "b"]], loss=1.0))
    assert verdict_of(alone, *(rank(*trained([[row]], loss=1.5)) for row in "ab"))[name].state is State.FAULT
    assert verdict_of(alone, *(rank(*trained([[row]], loss=1.5)) for row in "xy"))[name].state is State.NOTE
    near = [rank(*trained([[row]], loss=1.01)) for row in "ab"]
    assert verdict_of(alone, *near)[name].state is State.FAULT
    rounded = rank(event("precision", value=2**-7), *trained([["a", "b"]], loss=1.0))
    assert verdict_of(rounded, *near)[name].state is State.GOOD


def test_weights() -> None:
    ranks = [rank(*trained([[row]], weights=row)) for row in "ab"]
    found = verdict_of(rank(*trained([["a", "b"]])), *ranks)["all ranks hold the same weights at the end"]
    assert found.state is State.FAULT
    assert found.places[0].line == 2


def test_where_the_calls_part() -> None:
    ranks = [
        rank(event("call", 3, name="barrier", size=None), event("called", name="barrier")),
        rank(event("call", 4, name="all_reduce", size=1), event("called", name="all_reduce")),
    ]
    found = verdict_of(rank(), *ranks)["same calls that need all, in one order"]
    assert [(place.line, place.text) for place in found.places] == [
        (3, "rank 0 calls barrier"),
        (4, "rank 1 calls all_reduce"),
    ]
    silent = Rank(None, (event("step", 4), event("left", None)), "", "")
    found = verdict_of(rank(), ranks[0], silent)["same calls that need all, in one order"]
    assert found.places[1] == Place(4, "rank 1 makes no further call")


def test_who_waits_where() -> None:
    waiting = rank(event("call", 3, name="barrier", size=None), code=None)
    found = verdict_of(rank(), waiting, rank(), stopped="waiting")["no process waits for ever"]
    assert found.state is State.FAULT
    assert [place.text for place in found.places] == ["rank 0 waits in barrier", "rank 1 has ended with code 0"]


def test_shared_files_and_early_reads() -> None:
    asked = "one writer a file, one caller of a program or service"
    writes, reads = event("write", 3, path="a.json"), event("read", 2, path="a.json", there=True)
    wait = [event("call", 2, name="barrier", size=None), event("called", name="barrier")]
    assert verdict_of(rank(), rank(writes), rank(writes))[asked].state is State.FAULT
    assert verdict_of(rank(), rank(writes), rank(reads))[asked].state is State.FAULT
    assert verdict_of(rank(), rank(writes, *wait), rank(*wait, reads))[asked].state is State.GOOD
    below = event("write", 3, path="rows/train/a.arrow")
    lacks = [
        event("need", 2, what="files", name="rows", made=True),
        event("end", 2, code=1, inner=4, error="FileNotFoundError", message="Unable to find 'rows'"),
    ]
    for each, line in zip(lacks, (2, 4), strict=True):
        said = "rank 1 reads rows, which rank 0 writes, without waiting for it"
        assert verdict_of(rank(), rank(below), rank(each))[asked].places == (Place(line, said),)
        assert verdict_of(rank(), rank(*wait, below), rank(each))[asked].state is State.GOOD  # later, by all


def test_no_verdict_names_the_folder_of_a_run() -> None:
    folder = "/tmp/nb2ddp-1x/2-processes"
    said = f"No {folder}/work/rows.csv in {folder}/work, {folder}/tmp/a, {folder}/home/.cache or /tmp/nb2ddp-1x/hub"
    assert run._at_home(said, folder) == "No rows.csv in ., /tmp/a, ~/.cache or /tmp/nb2ddp-1x/hub"


def test_a_long_message_leaves_room_for_what_to_give() -> None:
    found = {"name": "/r/qwen", "made": False}
    ended = event("end", code=1, inner=2, error="ValueError", message="searched " * 90, raised=True)
    ran = Run((Rank(1, (event("asked", 2, **found), ended), "", ""),), 1.0, "")
    judged = judge(PLAN, ran, ran)
    assert judged.obstacle is not None
    assert judged.obstacle.text.endswith("; put qwen beside the script")
    assert len(judged.obstacle.text) < 220


def test_what_a_process_says_once_another_has_failed_is_not_told_beside_it() -> None:
    def ended(error: str, message: str) -> Rank:
        return Rank(1, (event("end", 3, code=1, inner=3, error=error, message=message),), "", "")

    lost, failed = ended("RuntimeError", "Connection closed by peer"), ended("KeyError", "a")
    told = [verdict_of(rank(), lost, other)["reaches its end"].places for other in (failed, rank())]
    assert [[place.text for place in places] for places in told] == [
        ["rank 1: KeyError: a"],
        ["rank 0: RuntimeError: Connection closed by peer", "rank 1 has left, with code 0"],
    ]


def test_what_is_empty_is_said() -> None:
    ended = event("end", code=1, inner=2, error="StopIteration", message="")
    ran = Run((Rank(1, (event("made", name="me/rows"), ended), "", ""),), 1.0, "")
    said = "StopIteration: the rows whose first one it takes are empty; --data FILE gives it real rows"
    assert judge(PLAN, ran, ran).obstacle == Place(2, said)


def test_a_run_of_a_tracker_for_each_process() -> None:
    begun = event("tracked", 3, what="a run of wandb")
    asked = verdict_of(rank(), rank(begun), rank(begun))["one writer a file, one caller of a program or service"]
    assert asked.places == (Place(3, "a run of wandb is begun by ranks 0, 1"),)


def test_rows_with_other_labels() -> None:
    alone = rank(*trained([["a:x", "b:y"]]))
    asked = "same global batch, same rows"
    assert verdict_of(alone, *(rank(*trained([[row]])) for row in ("a:x", "b:y")))[asked].state is State.GOOD
    found = verdict_of(alone, *(rank(*trained([[row]])) for row in ("a:x", "b:x")))[asked]
    assert (found.state, found.measured) == (State.FAULT, "1 of 2 samples have other labels than in one process")


def test_a_fixed_gpu_is_a_fault_where_more_than_the_main_process_come() -> None:
    plan = replace(PLAN, spread=((3, '"cuda:0" is the first GPU in every process'),))
    for line, state in ((2, State.GOOD), (None, State.FAULT)):
        others = Rank(0, (event("end", line, code=0),), "", "")
        judged = judge(plan, Run((rank(),), 1.0, ""), Run((rank(), others), 1.0, ""))
        assert {row.asked: row for row in judged.rows}["each process has its own GPU"].state is state


def test_a_thread_that_stays_is_named_where_it_was_started() -> None:
    left = Rank(None, (event("left", threads=[["poller", 3]], programs=[], group=False),), "", "")
    found = verdict_of(left, rank(), rank())["after training only the main process goes on"]
    assert found.places == (Place(3, "one process leaves poller running"),)


def test_rewards_of_one_completion() -> None:
    given = [event("reward", name="r", keys=["k"], values=[value], at=1) for value in (1.0, 2.0)]
    assert verdict_of(rank(), rank(given[0]), rank(given[0]))["rewards agree"].state is State.GOOD
    found = verdict_of(rank(), rank(given[0]), rank(given[1]))["rewards agree"]
    assert found.places[0].line == 1


def test_what_is_missing_is_an_obstacle_and_no_fault() -> None:
    ended = event("end", code=1, inner=1, error="ModuleNotFoundError", message="No module named 'x'")
    run = Run((Rank(1, (ended,), "", ""),), 1.0, "")
    judged = judge(PLAN, run, run)
    assert judged.code == 2
    assert "pip install x" in report.headline(judged)


@pytest.mark.parametrize(
    ("error", "code"), [("NameError", 1), ("UnboundLocalError", 1), ("KeyError", 2), ("TypeError", 2)]
)
def test_what_ends_one_process_may_lie_in_a_stand_in(error: str, code: int) -> None:
    run = Run((Rank(1, (event("end", code=1, inner=1, error=error, message="x"),), "", ""),), 1.0, "")
    assert judge(PLAN, run, run).code == code
    job = Run((rank(*trained([["a"]])), *run.ranks), 1.0, "")
    assert judge(PLAN, Run((rank(*trained([["a"], ["b"]])),), 1.0, ""), job).code == 1


def test_what_the_stand_ins_raise_is_an_obstacle() -> None:
    ended = event("end", code=1, inner=3, error="ValueError", message="x", ours=True)
    job = Run((rank(*trained([["a"]])), Rank(1, (ended,), "", "")), 1.0, "")
    judged = judge(PLAN, Run((rank(*trained([["a"], ["b"]])),), 1.0, ""), job)
    said = "ValueError: x; an error of nb2ddp rehearse, not of the script: please report it"
    assert (judged.code, judged.obstacle) == (2, Place(3, said))


def test_a_machine_that_was_not_asked_is_named() -> None:
    ended = event("end", code=1, inner=3, error="MaxRetryError", message="x", host="a.b", refused=True)
    job = Run((rank(*trained([["a"]])), Rank(1, (ended,), "", "")), 1.0, "")
    judged = judge(PLAN, Run((rank(*trained([["a"], ["b"]])),), 1.0, ""), job)
    assert (judged.code, judged.obstacle) == (2, Place(3, "MaxRetryError; --trust lets it ask a.b"))


def test_a_stand_in_that_could_not_be_made_is_named() -> None:
    run = Run((Rank(1, (event("end", code=1, inner=1, error="OSError", message="x"),), "", ""),), 1.0, "")
    judged = judge(PLAN, run, run, {("models", "me/odd"): "it is too odd", ("models", "me/good"): ""})
    assert judged.obstacle == Place(1, "no stand-in for me/odd: it is too odd")


def test_one_process_that_takes_too_long_is_an_obstacle() -> None:
    run = Run((Rank(None, (event("call", 2, name="barrier"),), "", ""),), 300.0, "limit")
    assert judge(PLAN, run, run).obstacle == Place(2, "it took longer than 300 s as one process")


def test_several_processes_that_take_too_long_are_an_obstacle() -> None:
    alone = Run((rank(*trained([["a"], ["b"]])),), 10.0, "")
    late = Rank(1, (), "", "Loading weights: 100%|####| 9/9")
    job = Run((Rank(None, (event("call", 2, name="reward"),), "", ""), late), 300.0, "limit")
    said = "it took longer than 300 s as 2 processes"
    assert judge(PLAN, alone, job).obstacle == Place(2, said)


def test_progress_is_shown_where_there_is_no_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    steps = ("installing", "", "1 process: line 7: step", "1 process: line 8: step", "2 processes: starting", "")
    progress = _Progress(is_terminal=False)
    for step in steps:
        progress(step)
    assert capsys.readouterr().err == "installing\n1 process: line 7: step\n2 processes: starting\n"


def test_a_progress_bar_is_no_error() -> None:
    said = "MemoryError: no more\nLoading weights:  50%|##  | 4/9\rLoading weights: 100%|####| 9/9"
    run = Run((Rank(1, (), "", said),), 1.0, "")
    judged = judge(PLAN, run, run)
    assert judged.obstacle is not None
    assert "MemoryError: no more" in judged.obstacle.text


@pytest.mark.parametrize(
    ("command", "is_shared"),
    [("bash -c 'source /etc/proxy && env | grep -i proxy'", False), ("nvidia-smi", False), ("python make.py", True)],
)
def test_a_program_that_only_shows_is_not_shared(command: str, is_shared: bool) -> None:
    ranks = [rank(event("program", 3, command=command)) for _ in range(2)]
    assert (
        verdict_of(rank(), *ranks)["one writer a file, one caller of a program or service"].state is State.FAULT
    ) is is_shared


def test_a_script_that_came_past_its_training_is_not_ready() -> None:
    judged = judge(PLAN, Run((rank(),), 1.0, ""), Run((rank(), rank()), 1.0, ""))
    assert judged.code == 2
    assert "no training began" in report.headline(judged)


def test_json_tells_the_same() -> None:
    run = Run((rank(*trained([["a"]]), event("write", 3, path="<b>")),) * 2, 1.0, "")
    judged = judge(PLAN, Run(run.ranks[:1], 1.0, ""), run)
    told = json.loads(report.as_json(judged))
    assert told["code"] == judged.code == 1
    assert [row["asked"] for row in told["questions"] if row["state"] == "fault"] == [
        row.asked for row in judged.faults
    ]


def test_hub_builds_what_is_asked_for_into_its_cache(tmp_path: Path) -> None:
    built = []

    def build(request: dict[str, Any]) -> str:
        built.append((request["type"], request["name"]))
        if request["name"] == "me/broken":
            return "no room"
        Path(request["folder"]).mkdir()
        return ""

    hub = Hub(tmp_path / "hub", build)
    for folder in ("models--me--small", "models--me--broken", "models--my_folder", "models--me--small"):
        asked = tmp_path / "hub" / "asked" / folder
        asked.touch()
        deadline = time.monotonic() + 20
        while asked.exists():
            assert time.monotonic() < deadline
            time.sleep(0.01)
    hub.close()
    assert built == [("models", "me/small"), ("models", "me/broken")]
    assert hub.offered == {("models", "me/small"): "", ("models", "me/broken"): "no room"}
    commit = (tmp_path / "hub" / "models--me--small" / "refs" / "main").read_text()
    assert (tmp_path / "hub" / "models--me--small" / "snapshots" / commit).is_dir()


def test_a_server_that_was_not_started_is_answered_for() -> None:
    with answering_server() as port:
        answers = []
        for data in (None, b"Rate this", b"Rate that", b"Rate this"):
            asked = urllib.request.Request(f"http://127.0.0.1:{port}/v1/chat/completions", data)
            answers.append(json.load(urllib.request.urlopen(asked))["choices"][0]["message"]["content"])
        assert answers == ["0", "7", "0", "7"]


def test_what_a_script_says_of_its_data(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(
        'rows = load_dataset("me/rows", "deutsch", split = "dev[:50]").select(range(900))\n'
        'rows.map(lambda row: {"text": row["frage"] + row["antwort"]})\nTrainer(model).train()\n'
    )
    assert read(script).data == {
        "": DataHints(("train", "test", "validation"), ("default",), 1200),
        "me/rows": DataHints(("dev", "train", "test", "validation"), ("deutsch",), 1200),
    }


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ('rows.map(lambda row: {"text": row["frage"] + row["antwort"]})', ["frage", "antwort"]),
        (
            "data = load_dataset('me/data')['train'].rename_column('label', 'labels').remove_columns(['id'])\n"
            "print(Trainer(data).train().metrics['train_runtime'])",
            ["label", "id"],
        ),
        (
            "data = load_dataset('me/data').rename_columns({'question': 'anchor', 'answer': 'positive'})\n"
            "SentenceTransformerTrainer(train_dataset=data).train()",
            ["question", "answer"],
        ),
        ("DPOTrainer(load_dataset('me/data'))", ["prompt", "chosen", "rejected"]),
        ("SentenceTransformerTrainer(load_dataset('me/data'))", ["anchor", "positive"]),
        ("SFTTrainer(load_dataset('me/data'))", []),
        ("row['said'] = row['text'] + '!'\nprint(row['said'])", ["text"]),
        ("row['said'] = row['said'] + '!'", ["said"]),
        (
            "def shown(row):\n    return {'prompt': row['asked'], 'answer': row['answer']}\nprint(rows[0]['prompt'])",
            ["asked", "answer"],
        ),
        ("rows = rows.map(lambda row: {'said': row['text']}).rename_column('said', 'x')", ["text"]),
        ('SFTTrainer(model).train()\nprint(trainer.train_dataset[0]["labels"], row["frage"])', ["frage"]),
    ],
)
def test_columns_are_those_that_the_script_or_its_trainer_reads(text: str, named: list[str]) -> None:
    assert sorted(columns(ast.parse(text))) == sorted(named)


@pytest.mark.parametrize(
    ("line", "kind"),
    [
        ("", "real"),
        ("load(auto_model = Lfm2ForCausalLM, fast_inference = False)", "real"),
        ('say([{"type": "audio", "audio": "sound.mp3"}])', "real"),
        ("load(auto_model = AutoModelForSequenceClassification)", "stand-in"),
        ("load(fast_inference = True)", "stand-in"),
        ('sound = row["audio"]', "stand-in"),
        ("from unsloth import FastVisionModel", "stand-in"),
        ("GRPOTrainer(model)", "stand-in"),
    ],
)
def test_text_trains_with_the_real_unsloth(line: str, kind: str, tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(f"from unsloth import FastLanguageModel\n{line}\nSFTTrainer(model).train()\n")
    assert read(script).unsloth == kind


def test_a_function_of_unsloth_trains_too(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text("from unsloth import FastLanguageModel, unsloth_train\nunsloth_train(SFTTrainer(model))\n")
    assert read(script).unsloth == "stand-in"


@pytest.mark.parametrize(
    ("text", "message"),
    [("x = 1\n", "trains nothing"), ("x = (\n", "not Python"), ("\0", "not Python")],
)
def test_bad_input_gets_one_line(text: str, message: str, tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(text)
    with pytest.raises(PlanError, match=message):
        read(script)
    result = CliRunner().invoke(main, ["rehearse", str(script)])
    assert result.exit_code == 2
    assert len(result.output.splitlines()) == 1


def test_a_file_that_is_not_there() -> None:
    result = CliRunner().invoke(main, ["rehearse", "nothing.py"])
    assert (result.exit_code, result.output) == (2, "nothing.py: there is no such file\n")


def test_missing_packages_are_named_with_the_command(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None if name == "accelerate" else name)
    (tmp_path / "train.py").write_text("Trainer(model).train()\n")
    with pytest.raises(PlanError, match=r"needs accelerate: install uv .*docs/rehearsal.md"):
        read(tmp_path / "train.py")


def test_secrets_and_launchers_stay_outside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("MY_API_KEY", "HF_TOKEN", "WANDB_API_KEY", "RANK", "MASTER_ADDR"):
        monkeypatch.setenv(name, "from outside")
    environ = environment(PLAN, tmp_path, {})
    assert "from outside" not in environ.values()
    assert launched(0, 1, 5, tmp_path) == {}
    assert launched(1, 2, 5, tmp_path)["LOCAL_RANK"] == "1"


def test_faults_are_changes_to_scripts_that_are_read(tmp_path: Path) -> None:
    assert len(FAULTS) >= 25
    for name in GOOD:
        assert read(FOLDER / f"{name}.py").trainers
    for name, fault in FAULTS.items():
        (tmp_path / f"{name}.py").write_text(fault.text())
        assert fault.line in read(tmp_path / f"{name}.py").text


def test_a_hub_that_is_slow_is_asked_no_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    class Slow(Separate):
        """Builds as long as it may ask the hub."""

        def start(self, *command: str, environment: Mapping[str, str], folder: Path, said: Path) -> Process:
            asked.append(environment.get("HF_HUB_OFFLINE"))
            return subprocess.Popen(["true"] if asked[-1] else ["sleep", "100"], start_new_session=True)

    monkeypatch.setattr("nb2ddp.rehearsal.rehearse._SECONDS", 0.1)
    environ: dict[str, str] = {}
    assert _build(Slow("python"), tmp_path, environ, {}) == ""
    assert _build(Slow("python"), tmp_path, environ, {}) == ""
    assert asked == [None, "1", "1"]


def test_what_is_real_is_said() -> None:
    run = Run((rank(*trained([["a"]])),), 1.0, "")
    loads = {("models", "me/a"): "", ("models", "me/b"): "", ("datasets", "me/c"): ""}
    origins = {"me/a": "hub", "me/b": "cache", "me/c": "stand-in"}
    judged = judge(PLAN, run, run, loads, origins)
    told = "\n".join(report.text_lines(judged))
    assert (
        "  models: me/a (real, made small), me/b (real, from the cache, made small)\n  data sets: me/c (a stand-in)"
        in told
    )
    assert json.loads(report.as_json(judged))["origins"] == origins


class Taker:
    """Takes what `TrainingArguments` and a data set of 240 rows take."""

    def __init__(self, **given: Any) -> None:
        self.given = given

    def __len__(self) -> int:
        return 240

    def select(self, indices: Any) -> Any:
        return indices


def test_made_up_rows_are_fewer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Taker, "select", Taker.select)
    _select_what_is_there(SimpleNamespace(Dataset=Taker))  # type: ignore[arg-type]
    assert Taker().select(range(100_000)) == range(240)
    assert Taker().select(range(500)) == range(500)  # more than the data set has: the script's own fault


def test_models_load_without_what_only_a_gpu_can() -> None:
    class Model:
        @classmethod
        def from_pretrained(cls, name: str, **given: Any) -> Any:
            return name, given

    _load_on_cpu("Model", SimpleNamespace(Model=Model))  # type: ignore[arg-type]
    asked = Model.from_pretrained("me/a", device_map=0, quantization_config={}, attn_implementation="flash_attention_2")
    assert asked == ("me/a", {"attn_implementation": "sdpa"})


def schema(folder: Path, text: str = "", columns: list[str] | None = None) -> Schema:
    known = Schema(str(folder / "schema.json"), text, 20, ["train", "test"])
    if not (folder / "schema.json").exists():
        known.columns = {name: known.guess(name) for name in columns or ["text"]}
    return known


def prepared(folder: Path, text: str, columns: list[str] | None = None) -> Schema:
    """What is learnt of `rows`, `table` and `open` from a preparation, which is run until it ends."""
    known = schema(folder, text, columns)
    for _ in range(12):
        rows = known.made_rows("rows")
        try:
            exec(compile(text, "prepare.py", "exec"), {"rows": rows, "table": {"fr": 0, "en": 1}})
            return known
        except Exception as error:
            place = learn.place_of(error, "prepare.py", text, known)
            assert place is not None
            if not learn.learn(error, place, lambda name: False, []):
                raise
    raise AssertionError(known.learnt)


CHAT = """import jinja2
shown = jinja2.Template("{% for turn in turns %}{{ turn.role + turn.content }}{% endfor %}").render
"""


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("[row['completion'] for row in rows]", "completion is read"),
        ("[row['talk'][0]['says'] for row in rows]", "talk is a list of what has the key says"),
        ("[turn['who'] + turn['says'] for row in rows for turn in row['talk']]", "talk.[] has the key says"),
        ("[row['a']['b']['c'] for row in rows]", "a.b has the key c"),
        ("import json\n[json.loads(row['tools'])['name'] for row in rows]", "tools.<json> has the key name"),
        ("[int(row['points']) for row in rows]", "points is a number"),
        ("[float(row['answer'].split('####')[1]) for row in rows]", "answer ends with a number"),
        ("for row in rows:\n    first, second = row['pair'].split(' => ')", "pair has ' => ' in it"),
        ("[table[row['tongue']] for row in rows]", "tongue "),
        ("[row['meta'].get('x') for row in rows]", "meta is a dict"),
        ("[row['share'] / 2 for row in rows]", "share is a number"),
        (
            "def reward(events): return 1.0\n[reward(**{k: row[k] for k in {*row} - {'text'}}) for row in rows]",
            "events is read",
        ),
        ("[' '.join(row['talk'][1:]) + row['talk'][0].strip() + row['id'] for row in rows]", "id is a text"),
        ("[row['count'].strip() for row in rows]", "count is a text"),
        ("import math\n[math.isnan(row['time']) for row in rows]", "time is a number"),
        ("for row in rows:\n    one = row['pick']\n    one['label'], one['said']\n", "pick has the key said"),
        ("def plain(a):\n    return a.lower()\n[plain(row['label']) for row in rows]", "label is a text"),
        ("[row['images'][3] for row in rows]", "images has 4 elements"),
        ("for row in rows:\n    one = row['pick']\n    [*zip(one['label'], one['said'])]\n", "pick.label is a list"),
        (f"{CHAT}[shown(turns=row['talk']) for row in rows]", "talk is a conversation"),
        ("for row in rows:\n    row['a'] and [row['b'][n] for n in range(200)]", "b is a long text"),
        ("[row['scan'].convert('RGB') for row in rows if 0] or [row['scan'] for row in rows]", "scan is read"),
    ],
)
@pytest.mark.skipif("sys.version_info < (3, 11)", reason="an exception does not tell its expression")
def test_made_rows_learn_what_a_preparation_reads(text: str, told: str, tmp_path: Path) -> None:
    assert any(told in each for each in prepared(tmp_path, text).learnt)


@pytest.mark.parametrize(("looks", "made"), [("islice(Path('a/scans').iterdir(), 2)", 1), ("open('a/scans')", 0)])
def test_a_folder_that_the_script_looks_into_is_made(looks: str, made: int, tmp_path: Path) -> None:
    text = f"from itertools import islice\nfrom pathlib import Path\nfor one in {looks}:\n    print(one)\n"
    with pytest.raises(FileNotFoundError) as raised:
        exec(compile(text, "prepare.py", "exec"), {})
    place = learn.place_of(raised.value, "prepare.py", text, schema(tmp_path))
    assert place is not None
    assert learn.learn(raised.value, place, lambda name: name == "a/scans", []) == bool(made)


def test_rows_on_disk_that_are_not_there_are_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Dataset:
        @staticmethod
        def load_from_disk(path: str) -> object:
            raise FileNotFoundError(path)

    made = sources(tmp_path)
    monkeypatch.setattr(made, "dataset", lambda name, split: f"made of {name}, {split}")
    files._load_made_rows(SimpleNamespace(Dataset=Dataset, __name__="datasets.x"), made)  # type: ignore[arg-type]
    assert Dataset.load_from_disk("rows") == "made of rows, train"


def test_what_get_asks_for_is_there_although_it_misses_nothing(tmp_path: Path) -> None:
    text = "for row in rows:\n    for one in row['answers']:\n        one.get('said'), one.get('votes')\n"
    known = prepared(tmp_path, text, ["answers"])
    assert known.shape(("answers", "[]")) == shapes.keyed(said=shapes.plain(), votes=shapes.plain())


def test_what_functions_of_rows_ask_for_is_found_in_the_text(tmp_path: Path) -> None:
    text = """def pair(row):
    many = row.get("answers", [])
    said = [one.get("text") for one in many if one["score"] is not None]
    return {"q": row["q"], "chosen": said[0]}
rows.map(pair).filter(lambda row: row["label"])
rows.map(lambda part: {"n": [len(one) for one in part["ids"]]}, batched=True)
def other(row): return row["no"]
def both(rows):
    for number, (one, other) in enumerate(zip(rows["good"], rows["bad"])):
        one[:-1], one[-1].get("role"), rows["text"][number], rows["text"][0]["a"]
        other.get("said")
rows.map(both, batched=True)
"""
    assert read_of_rows(ast.parse(text)) == {
        "answers": shapes.list_of(shapes.keyed(text=shapes.plain(), score=shapes.plain("number"))),
        "q": shapes.plain(),
        "label": shapes.one_of([0, 1]),
        "ids": shapes.plain(),
        "good": shapes.turns("role"),
        "bad": shapes.keyed(said=shapes.plain()),
        "text": shapes.keyed(a=shapes.plain()),
    }
    known = Schema(str(tmp_path / "schema.json"), text, 20, [])
    assert known.columns["good"] == shapes.turns("role")


def test_columns_hold_what_the_script_compares_them_with(tmp_path: Path) -> None:
    text = "assert [row for row in rows if row['lang'] == 'fr' and row['stars'] >= 4]"
    known = prepared(tmp_path, text)
    assert known.columns["lang"] == shapes.one_of(["fr"])
    assert known.columns["stars"] == shapes.one_of([3, 4, 5])


def test_the_names_of_columns_in_a_message_are_columns(tmp_path: Path) -> None:
    known = schema(tmp_path, "frame[['joke', 'label']]")
    place = learn.Place(None, None, __import__("ast").parse("frame[['joke', 'label']]"), known)  # type: ignore[arg-type]
    assert learn.learn(KeyError("['joke'] not in index"), place, lambda name: False, [])
    assert "joke" in known.columns
    assert learn.learn(
        ValueError("Length mismatch: Expected axis has 2 elements, new values have 3 elements"),
        place,
        lambda name: False,
        [],
    )
    assert known.width == 3


def test_labels_that_a_trainer_reads_are_learnt(tmp_path: Path) -> None:
    known = schema(tmp_path, "trainer.train()")
    place = learn.Place(None, None, __import__("ast").parse("trainer.train()"), known)  # type: ignore[arg-type]
    error = ValueError("The model did not return a loss from the inputs, only the following keys: logits.")
    assert learn.learn(error, place, lambda name: False, [])
    assert "label" in known.columns


def test_a_data_set_that_is_not_divided_has_no_splits(tmp_path: Path) -> None:
    text = """if len(rows[0]) < 2: raise KeyError("Invalid key: 0. Please first select a split. For: x['train']")"""
    known = schema(tmp_path, text)
    with pytest.raises(KeyError) as raised:
        exec(compile(text, "prepare.py", "exec"), {"rows": [[]]})
    place = learn.place_of(raised.value, "prepare.py", text, known)
    assert place is not None
    assert learn.learn(raised.value, place, lambda name: False, [])
    assert known.is_whole


def test_a_filter_of_a_table_that_leaves_none_keeps_all(tmp_path: Path) -> None:
    text = "few = table.iloc[[]]\nsome = table.loc[table['a'] > 9]\nassert len(few) == len(some) == 2\n"
    made = sources(tmp_path, text)
    made.schema.keeps_all = True
    import pandas  # type: ignore[import-untyped]
    from pandas.core import frame, indexing  # type: ignore[import-untyped]

    before = frame.DataFrame.__getitem__, frame.DataFrame.dropna, frame.DataFrame.query
    located = indexing._LocationIndexer.__getitem__
    try:
        files._keep_all_of_table(frame, made)
        exec(compile(text, made.log.script, "exec"), {"table": pandas.DataFrame({"a": [1, 2]})})
    finally:
        frame.DataFrame.__getitem__, frame.DataFrame.dropna, frame.DataFrame.query = before
        indexing._LocationIndexer.__getitem__ = located


def test_a_table_that_lacks_a_column_raises_what_the_script_raised(tmp_path: Path) -> None:
    text = "import pandas\ntable = pandas.DataFrame({'a': [1]})\ntable['b']\n"
    with pytest.raises(KeyError):
        prepared(tmp_path, text, ["b"])


def test_what_is_learnt_is_kept(tmp_path: Path) -> None:
    known = schema(tmp_path)
    known.add((), "frage")
    known.save()
    assert schema(tmp_path).columns == known.columns
    assert schema(tmp_path).made_rows("a") == known.made_rows("a")  # in every process


def sources(folder: Path, text: str = "", columns: list[str] | None = None, sample: str = "") -> Sources:
    script = folder / "train.py"
    script.write_text(text)
    log = Log()
    log.open(str(folder / "log"), str(script))
    return Sources(log, schema(folder, text, columns), str(folder), sample)


@pytest.mark.parametrize(
    ("name", "start"),
    [
        ("a.png", b"\x89PNG"),
        ("b/a.jpg", b"\x89PNG"),
        ("a.wav", b"RIFF"),
        ("a.csv", b"frage,label"),
        ("a.jsonl", b'{"frage": '),
        ("a.json", b'[{"frage": '),
        ("a.txt", b""),
    ],
)
def test_a_file_that_is_not_there_is_made(
    name: str, start: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    made = sources(tmp_path, columns=["frage", "label"])
    assert made.make(name)
    assert Path(name).read_bytes().startswith(start)
    assert not made.make(name)
    assert made.schema.files == [name]
    assert json.loads((tmp_path / "log").read_text())["name"] == name
    assert not any(made.make(each) for each in ("/elsewhere/a.csv", "a.unknown", "x" * 400 + ".csv"))


def test_a_folder_has_files_of_the_kinds_that_the_script_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    made = sources(tmp_path, 'glob("scans/*.png")')
    assert made.make("scans")
    assert made.make("pages/*.png")
    assert sorted(path.name for path in Path("scans").iterdir()) == [f"made{n}.png" for n in range(4)]
    assert len(list(Path("pages").glob("*.png"))) == 4


def test_a_folder_that_another_rank_makes_meanwhile_is_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    made = sources(tmp_path, 'glob("scans/*.png")')
    assert made.make("scans")
    before = {path.name: path.read_bytes() for path in Path("scans").iterdir()}
    monkeypatch.setattr("os.path.exists", lambda path: False)
    assert made.make("scans")
    assert {path.name: path.read_bytes() for path in Path("scans").iterdir()} == before
    assert not list(Path().glob("*.part"))


def test_a_table_has_as_many_columns_as_are_counted(tmp_path: Path) -> None:
    made = sources(tmp_path, columns=["a", "b"])
    made.schema.width = 3
    assert list(made.table("rows.csv")[0]) == ["a", "b", "column0"]


def test_a_sample_gives_the_rows(tmp_path: Path) -> None:
    (tmp_path / "mine.jsonl").write_text('{"q": "Why?"}\n')
    assert sources(tmp_path, sample=str(tmp_path / "mine.jsonl")).rows("any")[:2] == [{"q": "Why?"}] * 2


def in_a_process(run: Callable[[], object]) -> None:
    """Call what forks and changes Python itself in a process of its own; it passes on its failure."""
    process = multiprocessing.get_context("fork").Process(target=run)
    process.start()
    process.join(60)
    process.kill()
    assert process.exitcode == 0


def test_a_statement_that_training_does_not_need_is_passed_over(tmp_path: Path) -> None:
    text = "import os\nshown = []\nprint(rows[0])\nrows = [1]\ntrainer.train()\nopen('x').nothing\nlast = missing\n"
    made = sources(tmp_path, text)
    names = {"rows": [], "trainer": SimpleNamespace(train=lambda: None)}
    in_a_process(Attempts(made.log, made, made.log.script, text, is_alone=True, names=dict(names)).run)
    made.schema.load()
    assert made.schema.passed == [3, 6, 7]
    said = [json.loads(line) for line in (tmp_path / "log").read_text().splitlines()]
    assert [each["own"] for each in said if each["kind"] == "passed"] == [False, False, True]
    job = Attempts(made.log, made, made.log.script, text, is_alone=False, names=dict(names))
    job.run()
    assert isinstance(job.names["last"], packages.Nothing)


def test_a_process_waits_before_it_loads_for_what_one_process_has_learnt(tmp_path: Path) -> None:
    text = "began = True\nshown = missing\nrows = open(name).read()\nlast = missing\n"
    made, gate = sources(tmp_path, text), tmp_path / "gate"
    names = {"name": str(tmp_path / "rows.txt")}
    job = Attempts(made.log, made, made.log.script, text, is_alone=False, names=names, gate=str(gate))
    process = threading.Thread(target=job.run)
    process.start()
    process.join(0.5)
    assert process.is_alive()
    assert "began" in names
    assert "shown" not in names  # it has failed, and may be passed over
    learnt = sources(tmp_path, text).schema
    learnt.passed, learnt.files = [2, 4], [names["name"]]
    learnt.save()
    gate.touch()
    process.join(20)
    assert isinstance(names["shown"], packages.Nothing)
    assert names["rows"]
    assert isinstance(names["last"], packages.Nothing)
    assert not (tmp_path / "log").read_text()  # the rehearsal has made the file, not the script


def test_training_needs_what_its_rows_are_made_of(tmp_path: Path) -> None:
    text = """answer = model.generate("Why?")
print(answer)
def told(row, answer=1):
    table = [answer for answer in row]
    return sep + row
sep = "#"
table.to_csv("rows.csv")
rows = load("rows.csv").map(told)
rows.save("other.csv")
answer = 1
trainer = Trainer(model, rows, answer)
trainer.train()
"""
    assert [each.lineno for each in _needed(ast.parse(text))] == [12, 11, 10, 9, 8, 7, 6, 3]


def test_a_statement_that_takes_long_after_training_is_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nb2ddp.rehearsal.stage.attempts._LATER", 0.2)
    text = "trainer.train()\nwhile True:\n    pass\n"
    made = sources(tmp_path, text)
    names = {"trainer": SimpleNamespace(train=lambda: None)}
    in_a_process(Attempts(made.log, made, made.log.script, text, is_alone=True, names=names).run)
    made.schema.load()
    assert made.schema.passed == [2]


def test_a_statement_that_training_needs_is_not(tmp_path: Path) -> None:
    text = "rows = rows[0]\ntrainer.train(rows)\n"
    made = sources(tmp_path, text)

    def run() -> None:
        with pytest.raises(IndexError):
            Attempts(made.log, made, made.log.script, text, is_alone=True, names={"rows": []}).run()

    in_a_process(run)
    made.schema.load()
    assert made.schema.passed == []
    tree = ast.parse("model.config.x = 1\nwords.add(1)\nwith a as b: pass\nmade = words_of(a).to('cuda')")
    assert [_changed(each) for each in tree.body] == [{"model"}, {"words"}, {"b"}, {"made"}]


def test_what_does_nothing_can_be_computed_with() -> None:
    metric: Any = packages.Nothing()
    kind: Any = packages.Nothing
    for number in (metric, kind):
        assert f"{round(100 * (1 - number) / 2, 3):.2f}" == "rehearsal"
        assert (float(number), int(number), number < 1, number > 1) == (0.0, 0, True, True)
    assert packages._numbers({"wer": metric, "loss": 1.5}) == {"wer": 0.0, "loss": 1.5}
    assert packages._numbers(None) is None


def test_a_data_set_of_a_package_that_is_not_there_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packages.Nothing, "rows", staticmethod(lambda package: SimpleNamespace(column_names=[package])))
    pack = packages.Missing(Log()).create_module(ModuleSpec("no_such.packs", None)).Pack
    assert pickle.loads(pickle.dumps(pack().run())).column_names == ["no_such"]
    assert packages._is_nothing(packages.Nothing().column_names)  # of no package


def test_what_does_nothing_can_be_sent_to_other_processes() -> None:
    of_package = packages.Missing(Log()).create_module(ModuleSpec("no_such_package_at_all", None)).Client
    assert issubclass(pickle.loads(pickle.dumps(of_package)), packages.Nothing)
    assert isinstance(pickle.loads(pickle.dumps(of_package())), packages.Nothing)


def test_arguments_that_only_a_gpu_takes_are_known_from_unsloths_loaders() -> None:
    if find_spec("unsloth") is None:
        pytest.skip("Unsloth is not installed")
    assert {"fullgraph", "qat_scheme", "max_seq_length"} <= fast._taken_on_gpus()


def test_a_package_that_is_not_there_does_nothing_and_is_not_trained(tmp_path: Path) -> None:
    log = Log()
    log.open(str(tmp_path / "log"), __file__)
    finder = packages.Missing(log)
    spec = finder.find_spec("no_such_package_at_all", None)
    assert spec is not None
    assert finder.find_spec("trl", None) is None
    assert json.loads((tmp_path / "log").read_text())["package"] is True

    class Trainer:
        def __init__(self, model: Any) -> None: ...

    packages._refuse(SimpleNamespace(Trainer=Trainer, __name__="transformers.trainer"))  # type: ignore[arg-type]
    Trainer("model")
    with pytest.raises(ModuleNotFoundError, match="No module named 'no_such_package_at_all', which training needs"):
        Trainer(finder.create_module(spec).Page())


def test_a_run_of_a_tracker_is_noted_unless_it_is_told_to_do_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log, begun = Log(), list[dict[str, Any]]()
    log.open(str(tmp_path / "log"), __file__)
    wandb = SimpleNamespace(__name__="wandb", init=lambda **given: begun.append(given))
    packages._note_runs(wandb, log)  # type: ignore[arg-type]
    monkeypatch.setenv("WANDB_MODE", "offline")
    wandb.init(project="a")
    wandb.init(mode="disabled")
    monkeypatch.setenv("WANDB_MODE", "disabled")
    wandb.init()
    assert [each["mode"] for each in begun] == ["disabled"] * 3
    assert [json.loads(line)["what"] for line in (tmp_path / "log").read_text().splitlines()] == ["a run of wandb"]


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("load('m', num_labels = 6)", [0, 1, 2, 3, 4, 5]),
        ("names = {'a': 0, 'b': 1, 'c': 2}\nload('m', num_labels = len(names))", [0, 1, 2]),
        ("COUNT = 3\nload('m', num_labels = COUNT)", [0, 1, 2]),
        ("load('m', num_labels = count())", [0, 1]),
        ("", [0, 1]),
    ],
)
def test_made_labels_are_as_many_as_the_model_has(tmp_path: Path, text: str, values: list[int]) -> None:
    assert schema(tmp_path, text, ["label"]).columns["label"]["values"] == values


def test_a_head_that_was_cut_gives_a_loss() -> None:
    def stock(logits: Any, labels: Any, vocab_size: int, **given: Any) -> tuple[int, dict[str, Any]]:
        return vocab_size, given

    losses = SimpleNamespace(ForCausalLMLoss=stock, LOSS_MAPPING={"ForCausalLM": stock}, __name__="losses")
    fast._take_the_width_of_the_head(losses)  # type: ignore[arg-type]
    logits = SimpleNamespace(shape=(2, 8, 4))
    assert losses.LOSS_MAPPING["ForCausalLM"](logits=logits, labels=None, vocab_size=512, shift=1) == (4, {"shift": 1})


def test_texts_get_no_end_that_unsloth_does_not_add() -> None:
    class Dataset:
        def map(self, function: Any, **given: Any) -> str:
            return "mapped"

    def add_eos(row: Any) -> None: ...

    fast._end_no_texts(SimpleNamespace(Dataset=Dataset, __name__="datasets.arrow_dataset"))  # type: ignore[arg-type]
    rows: Any = Dataset()
    assert rows.map(add_eos, num_proc=2) == "mapped"  # the script's own
    add_eos.__module__ = "trl.trainer.sft_trainer"
    assert rows.map(add_eos, num_proc=2) is rows


def test_a_configuration_of_bitsandbytes_is_made_without_it() -> None:
    class Config:
        """Asks for the version as transformers 4 does."""

        def post_init(self) -> None:
            self.is_checked = True
            metadata.version("bitsandbytes-that-is-not-there")

    versions._ask_for_no_package(SimpleNamespace(BitsAndBytesConfig=Config))  # type: ignore[arg-type]
    config = Config()
    config.post_init()
    assert config.is_checked


def test_a_library_that_is_not_known_is_named() -> None:
    with pytest.raises(UnknownError, match=r"does not know pytest [\d.]+: pytest.Nothing.that"):
        attribute(pytest, "Nothing.that")


def test_it_is_ready_but_for_a_cell() -> None:
    passed = event("passed", 3, error="KeyError", message="'x'", after=True, own=False)
    alone = rank(*trained([["a", "b"]]), passed)
    judged = judge(PLAN, Run((alone,), 1.0, ""), Run(tuple(rank(*trained([[each]])) for each in "ab"), 1.0, ""))
    assert judged.code == 3
    assert report.headline(judged) == "2 processes train as one does; not rehearsed: train.py:3: KeyError: 'x'"


def test_a_name_that_nothing_binds_is_a_fault_after_training_too() -> None:
    alone = rank(*trained([["a", "b"]]), event("passed", 3, error="NameError", message="x", after=True, own=True))
    judged = judge(PLAN, Run((alone,), 1.0, ""), Run(tuple(rank(*trained([[each]])) for each in "ab"), 1.0, ""))
    assert (judged.code, judged.passed) == (1, ())
    assert judged.faults[0].places == (Place(3, "the notebook's own fault: NameError: x"),)


@pytest.mark.parametrize(
    ("before", "error", "message", "told"),
    [
        (event("made", name="me/rows"), "KeyError", "x", "--data FILE"),
        (event("stand-in", name="jiwer", package=True), "TypeError", "No module named 'jiwer'", "pip install jiwer"),
        (event("stand-in", name="rows", package=True), "TypeError", "No module named 'rows'", "; put rows.py beside"),
        (event("clone", address="https://x/y", folder="y", there=False), "OSError", "y", "or --trust"),
        (event("made", name="me/rows"), "TypeError", "f() got an unexpected keyword argument 'z'", "change this line"),
        (event("line"), "ConnectionError", "(host='a.b', port=1)", "--trust lets it ask a.b"),
        (event("line"), "ImportError", "cannot import name 'X' from 'trl'", "--versions notebook"),
        (event("line"), "TypeError", "f() got an unexpected keyword argument 'x'", "--versions notebook"),
        (event("line"), "FileNotFoundError", "No such file or directory: 'rows.zip'", "put rows.zip beside the script"),
        (event("line"), "OSError", "liba.so.1: cannot open shared object file", "install the system library liba"),
    ],
)
def test_an_obstacle_says_what_to_give(before: dict[str, Any], error: str, message: str, told: str) -> None:
    run = Run((Rank(1, (before, event("end", code=1, inner=1, error=error, message=message)), "", ""),), 1.0, "")
    text = f"{PLAN.text}# rows.py holds what makes them\n"
    plan = replace(PLAN, text=text, other_versions=("trl<1",) * ("--versions" in told))
    assert told in report.headline(judge(plan, run, run))


@pytest.mark.parametrize(
    ("error", "library", "told"),
    [
        ("ValueError", "trl", "--versions notebook"),
        ("TypeError", "", "--versions notebook"),
        ("KeyError", "trl", "--data"),
        ("ValueError", "", "--data"),
    ],
)
def test_what_a_library_refuses_may_be_taken_by_another_version(error: str, library: str, told: str) -> None:
    plan = replace(PLAN, other_versions=("trl==0.22.2",))
    ended = event("end", code=1, inner=1, error=error, message="x", library=library)
    run = Run((Rank(1, (event("made", name="me/rows"), ended), "", ""),), 1.0, "")
    assert told in report.headline(judge(plan, run, run))


@pytest.mark.skipif(not hasattr(socket, "AF_UNIX"), reason="has no such sockets")
def test_sockets_fit_below_long_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept, usual = (tmp_path / (name * 100) for name in "kt")
    usual.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(usual))
    with _folder(kept) as root:
        below = root / "16-processes" / "tmp" / "pymp-12345678"
        below.mkdir(parents=True)
        path = str(below / "listener-12345678")
        with socket.socket(socket.AF_UNIX) as bound:
            bound.bind(path)
        assert len(path) < 104
        (root / "a.txt").touch()
    assert (kept / "a.txt").is_file()
    assert not root.exists()


def test_a_failure_rests_on_what_its_statement_reads() -> None:
    used = "x = c.load()\ndef f(y):\n    return e(y)\nz = map(f, x)\nq = b\nz.train()\n"
    source = f"import a, b\nimport c\nfrom d import e\n{used}"
    assert rests_on(source, 9) == {"c", "d"}
    assert rests_on(source, 8) == {"a", "b"}


@pytest.mark.parametrize(
    ("about", "told"),
    [
        ({"rests": ["outetts"]}, "git clone https://x/OuteTTS OuteTTS"),
        ({"rests": ["whisper"]}, "pip install openai-whisper, or"),
        ({"rests": ["datasets"]}, "--data FILE"),
        ({"rests": [], "message": "no folder OuteTTS/x"}, "git clone https://x/OuteTTS OuteTTS"),
    ],
)
def test_what_is_absent_is_named_where_the_failure_rests_on_it(about: dict[str, Any], told: str) -> None:
    absent = [event("stand-in", name=name, package=True) for name in ("outetts", "whisper", "gdown")]
    clone = event("clone", address="https://x/OuteTTS", folder="OuteTTS", there=False)
    end = event("end", **{"code": 1, "inner": 1, "error": "StopIteration", "message": "", **about})
    run = Run((Rank(1, (*absent, clone, event("made", name="me/rows"), end), "", ""),), 1.0, "")
    said = report.headline(judge(PLAN, run, run))
    assert told in said
    assert "gdown" not in said


def test_variables_that_are_not_set_have_a_value(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(
        'os.environ["MINE"] = os.getenv("EPOCHS") + {**os.environ}["RANK"] + os.environ["MINE"]\n'
        'if "THE_KEY" in os.environ: os.environ.setdefault("MODE", "a") == os.environ["MODE"]\nTrainer(model).train()\n'
    )
    plan = read(script)
    assert plan.variables == {"MINE": True, "EPOCHS": False, "THE_KEY": True}
    given = environment(plan, tmp_path / "run", {})
    assert [given.get(name) for name in ("MINE", "EPOCHS", "THE_KEY")] == ["rehearsal", None, "rehearsal"]


def test_a_database_that_a_run_begins_with_may_be_read_by_all(tmp_path: Path) -> None:
    log, work = Log(), tmp_path / "work"
    work.mkdir()
    (work / "given.db").touch()
    log.open(str(tmp_path / "log"), "train.py")

    outside = Outside(log, str(tmp_path), str(work), is_trusted=False, beside="", server=9)
    for name in (str(work / "given.db"), str(work / "new.db"), ":memory:"):
        outside._opens_database(name)
    assert [json.loads(line)["path"] for line in (tmp_path / "log").read_text().splitlines()] == ["new.db"]


def test_a_clone_is_whole_though_the_script_names_files_in_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("beside/repository/a.py", "beside/repository/b.py", "work/repository/a.py"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    monkeypatch.chdir(tmp_path / "work")
    log = Log()
    log.open(str(tmp_path / "log"), "train.py")
    folders = str(tmp_path), str(tmp_path / "work")
    outside = Outside(log, *folders, is_trusted=False, beside=str(tmp_path / "beside"), server=9)
    outside._clone("git clone https://x/repository", None)
    assert {path.name for path in Path("repository").iterdir()} == {"a.py", "b.py"}


def test_a_hosted_folder_is_that_of_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    log = Log()
    log.open(str(tmp_path / "log"), "train.py")
    text = 'rows = "/kaggle/input/rows.csv", "/contents"\nout = f"/kaggle/working/{name}"\nhome = \'/kaggle/working\'\n'
    at_home = text.replace("/kaggle/working", str(tmp_path)).replace("/kaggle/input", f"{tmp_path}/kaggle/input")
    assert _at_home(text, log) == at_home
    said = json.loads((tmp_path / "log").read_text())
    assert (said["kind"], said["name"], said["line"]) == ("stand-in", "/kaggle/working", 2)


def test_a_model_in_a_folder_that_is_not_there_gets_an_id(tmp_path: Path) -> None:
    asked = ["unsloth/Qwen3-0.6B", "outputs/checkpoint-60", str(tmp_path)]
    assert [_offered(name) for name in asked] == asked
    assert [_offered(name) for name in ("/home/me/models/qwen-sft/", "./qwen-sft")] == ["local/qwen-sft"] * 2


def test_no_gguf_file_is_made(tmp_path: Path) -> None:
    log, loader = Log(), SimpleNamespace(save_pretrained_gguf=None)
    log.open(str(tmp_path / "log"), "train.py")
    _make_no_gguf(loader, log)  # type: ignore[arg-type]
    model = SimpleNamespace(save_pretrained=lambda folder: Path(folder).mkdir())
    (made,) = loader.save_pretrained_gguf(model, str(tmp_path / "out"), None, quantization_method="q8_0")
    assert Path(made).suffix == ".gguf"
    assert Path(made).exists()


@pytest.mark.parametrize(
    ("about", "small"),
    [
        ({"layer_types": ["conv", "conv", "full_attention", "conv"]}, {"layer_types": ["conv", "full_attention"]}),
        ({"attn_layer_indices": [1, 3]}, {"attn_layer_indices": [1]}),
        ({"attn_layer_period": 8, "attn_layer_offset": 4}, {"attn_layer_period": 2, "attn_layer_offset": 1}),
    ],
)
def test_two_layers_are_one_of_each_kind(about: dict[str, Any], small: dict[str, Any]) -> None:
    assert shrunk({"num_hidden_layers": 4, **about}) == {"num_hidden_layers": 2, **small}


def test_rows_are_of_the_kinds_that_their_columns_say() -> None:
    rng, make = random.Random(0), shapes.Maker()
    assert {turn["role"] for turn in make.value(shapes.by_name("messages"), rng)} == {"user", "assistant"}
    assert make.value(shapes.by_name("image"), rng)["bytes"].startswith(b"\x89PNG")
    assert make.value(shapes.by_name("audio"), rng)["bytes"].startswith(b"RIFF")
    row = {"talk": make.column("talk", shapes.turns("role"), "rows", 1)[0]}
    assert make.path(row["talk"][0]["content"]) == ("talk", "[]", "content")
    assert make.path(row["talk"][0]) == ("talk", "[]")
    assert make.path(row) == ()


def test_marimo_notebooks_are_converted_and_exported_scripts_are_not(tmp_path: Path) -> None:
    marimo, exported = tmp_path / "a.py", tmp_path / "b.py"
    marimo.write_text(TRAINING)
    exported.write_text("# In[1]:\n\n\ntrainer.train()\n")
    script, text, _ = _script(str(marimo))
    assert script == marimo
    assert "# %% Distributed setup" in text
    assert _script(str(exported))[1] == exported.read_text()


def test_a_link_is_fetched_and_converted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(links, "fetch", lambda link: notebook().encode())
    script, text, _ = _script("https://github.com/me/notebooks/blob/main/tune.ipynb")
    assert script.name == "tune.py"
    assert "# %% Distributed setup" in text


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("http://example.com/a.ipynb", "http://example.com/a.ipynb: only https links are fetched"),
        ("https://127.0.0.1/a.ipynb", "https://127.0.0.1/a.ipynb: "),
        ("folder", "folder: is a folder, not a notebook"),
        ("picture.ipynb", "picture.ipynb: not a notebook: not UTF-8 (invalid start byte at byte 0)"),
        ("text.ipynb", "text.ipynb: "),
    ],
)
def test_bad_sources_get_one_line(source: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("folder").mkdir()
    Path("picture.ipynb").write_bytes(b"\x89PNG")
    Path("text.ipynb").write_text("Not JSON.")
    result = CliRunner().invoke(main, ["rehearse", source])
    assert (result.exit_code, len(result.output.splitlines())) == (2, 1)
    assert result.output.startswith(message)


def test_readme_and_page_tell_of_all_questions() -> None:
    (ready,) = rehearsals.READY.findall(rehearsals.README.read_text(encoding="utf-8"))
    (wrong,) = rehearsals.FAULTS.findall(rehearsals.PAGE.read_text(encoding="utf-8"))
    asked = [asked for asked, _ in QUESTIONS]
    assert re.findall(r"^  ✓ (.+?)  ", ready, re.MULTILINE) == asked
    faults = re.findall(r"^  ✗ (.+?)  ", wrong, re.MULTILINE)
    assert f"{len(faults)} of {len(asked)} questions show a fault" in wrong
    assert set(faults) < set(asked)


@pytest.mark.parametrize("engine", [True, False])
def test_only_a_model_with_an_engine_loads_adapters_and_takes_prompts(engine: bool) -> None:
    model = _equipped(SimpleNamespace(save_pretrained=None, generate=lambda **given: given), engine)
    assert (hasattr(model, "load_lora"), hasattr(model, "vllm_engine")) == (engine, engine)
    if not engine:
        assert model.fast_generate(input_ids=[1]) == {"input_ids": [1]}
        with pytest.raises(ValueError, match="fast_inference = True alone"):
            model.fast_generate("Hi")


def test_an_error_of_ours_is_none_of_the_script(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("Trainer(model).train()\n")
    monkeypatch.setattr("nb2ddp.rehearsal.rehearse.rehearse", lambda *_: 1 / 0)
    result = CliRunner().invoke(main, ["rehearse", str(tmp_path / "train.py")])
    assert result.exit_code == 2
    assert "an error of nb2ddp rehearse, not of the script: ZeroDivisionError" in result.output
    run = Run((Rank(1, (), "", "Traceback\nKeyError: 'steps'\n"),), 1.0, "")
    assert "not of the script: KeyError: 'steps'" in report.headline(judge(PLAN, run, run))


def test_a_long_text_is_no_path(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(f"say('{'違' * 150}')\nTrainer(model).train()\n")
    assert read(tmp_path / "train.py").files == ()


def test_the_first_line_says_what_fails_already() -> None:
    run = Run((Rank(1, (event("end", code=1, inner=1, error="NameError", message="name 'x'"),), "", ""),), 1.0, "")
    said = "one process fails already, the notebook's own fault: train.py:1: NameError: name 'x'"
    assert report.headline(judge(PLAN, run, run)) == said


def test_what_is_evaluated_is_compared() -> None:
    alone = rank(*trained([["a", "b"]]), event("other rows", rows=["x", "y", "z"]))
    whole = [rank(*trained([[row]]), event("other rows", rows=rows)) for row, rows in (("a", "xy"), ("b", "zx"))]
    assert verdict_of(alone, *whole)[LOSSES].state is State.GOOD
    share = [rank(*trained([[row]]), event("other rows", rows=rows)) for row, rows in (("a", "x"), ("b", "y"))]
    found = verdict_of(alone, *share)[LOSSES]
    assert found.state is State.FAULT
    assert "3 rows are evaluated in one process, 2 of these in 2" in found.measured
    plan = replace(PLAN, text=f"{PLAN.text}args(dataloader_drop_last = True)\n")
    dropped = judge(plan, Run((alone,), 1.0, ""), Run(tuple(share), 1.0, ""))
    (row,) = [row for row in dropped.rows if row.asked == LOSSES]
    assert (row.state, row.measured) == (
        State.NOTE,
        f"{found.measured}: what fills no batch of all processes is dropped",
    )


def test_what_is_beyond_a_rehearsal_is_named() -> None:
    plan = replace(PLAN, text="from snac import SNAC\nmodel = load('a', trust_remote_code = True)\n")
    failed = Run((Rank(1, (event("end", code=1, inner=2, error="TypeError", message="no infer"),), "", ""),), 1.0, "")
    said = "not rehearsed: code of a model's repository (trust_remote_code), codecs of sounds (TypeError: no infer)"
    assert report.headline(judge(plan, failed, failed)) == f"could not be rehearsed: {said}"
    alone = rank(*trained([["a", "b"]]))
    ready = judge(plan, Run((alone,), 1.0, ""), Run(tuple(rank(*trained([[each]])) for each in "ab"), 1.0, ""))
    assert report.headline(ready) == "ready: 2 processes train as one does"


def test_events_are_read_as_they_were_written(tmp_path: Path) -> None:
    log = Log()
    log.open(str(tmp_path / "log"), __file__)
    log.write(events.Reward("r", ["k"], [1.0], at=3))
    log.write(events.End(code=1, line=2, error="KeyError"))
    reward, end = (events.read(json.loads(line)) for line in (tmp_path / "log").read_text().splitlines())
    assert isinstance(reward, events.Reward)
    assert (reward.keys, reward.values, reward.at, reward.helper) == (["k"], [1.0], 3, False)
    assert end == events.End(code=1, line=2, error="KeyError")


def test_a_part_of_a_stream_has_no_length(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()  # transformers asks which packages there are

    class Part:
        def __len__(self) -> int:
            raise TypeError("object of type 'IterableDataset' has no len()")

    args = SimpleNamespace(per_device_train_batch_size=2, gradient_accumulation_steps=1, world_size=2)
    assert _begin(SimpleNamespace(dataset=Part()), args) == events.Train(samples=4)
