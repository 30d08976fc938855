"""The scripts of `benchmarks/grpo.py`, and how it runs them: with a script that stands in for a training."""

from __future__ import annotations

import ast
import json
import os
import time
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import pytest

from benchmarks import grpo, grpo_cases, once_more
from benchmarks.gpu.processes import running

#: Writes down a training of one step, waits at its gate where it has one, and says which GPUs it sees.
TRAINING = """\
import json, os, time
from pathlib import Path
folder, gate = Path(os.environ["BENCH_FOLDER"]), os.environ.get("BENCH_GATE")
if gate:
    Path(gate, "ready-0").touch()
    while not Path(gate, "go").exists():
        time.sleep(0.01)
events = [
    {"event": "begin", "per_device": 4, "accumulation": 2, "done": 0, "weights": "a"},
    {"event": "step", "step": 1, "loss": 0.5, "reward": 1.0},
    {"event": "end", "weights": "b", "reserved": 7, "by_gpu": []},
]
(folder / "0.jsonl").write_text("".join(json.dumps(event) + "\\n" for event in events))
(folder / "0.phases.jsonl").write_text(json.dumps([{"whole": 1.0}]) + "\\n")
print("sees", os.environ["CUDA_VISIBLE_DEVICES"])
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "scripts").mkdir()
    return tmp_path


def kept(folder: Path) -> dict[str, Any]:
    return dict(json.loads((folder / "grpo.json").read_text()))


def test_every_case_has_a_script_that_says_what_its_steps_take(folder: Path) -> None:
    grpo_cases.write(folder / "scripts")
    for name in (*grpo_cases.CASES, *grpo_cases.STARTS):
        text = (folder / "scripts" / f"{name}.py").read_text()
        ast.parse(text)
        start = grpo_cases.STARTS.get(name)
        case = start.case if start else grpo_cases.CASES[name]
        assert text.count(grpo_cases.ATTACH + "trainer.train(") == len(case.trainings)
        assert ("fast_inference = True" in text) == (case.engine > 0 and not case.server)


def test_starts_that_must_fail_have_what_is_wrong_with_them(folder: Path) -> None:
    grpo_cases.write(folder / "scripts")
    text = {name: (folder / "scripts" / f"{name}.py").read_text() for name in grpo_cases.STARTS}
    assert "if is_main_process:\n    model, tokenizer = Fast" in text["start-rank-test"]
    assert ")\nPartialState().wait_for_everyone()\nmodel = Fast" in text["start-rank-test-waited"]
    setting = 'os.environ["UNSLOTH_VLLM_STANDBY"] = "1"'
    assert text["start-standby-late"].index("import unsloth") < text["start-standby-late"].index(setting)


def test_the_other_kinds_have_scripts(folder: Path) -> None:
    once_more.write(folder / "scripts")
    for name in once_more.SCRIPTS:
        text = (folder / "scripts" / f"{name}.py").read_text()
        ast.parse(text)
        assert ("device_map = local_rank if world_size > 1" in text) == (name == "split")
        assert ("!accelerate launch" in text) == (name == "kaggle")


def test_a_job_is_kept_with_its_steps_and_their_parts(folder: Path) -> None:
    (folder / "scripts" / "lora-16bit.py").write_text(TRAINING)
    assert grpo.Bench(folder, 60, 60, 0).do("lora-16bit/1", ["1"])
    run = kept(folder)["lora-16bit/1"]
    assert (run["code"], run["left"], run["gpus"]) == (0, [], ["1"])
    ((training,),) = run["ranks"]
    assert (training["batch"], training["weights"], training["parts"]) == ([4, 2], ["a", "b"], [{"whole": 1.0}])


def test_a_job_that_takes_too_long_is_ended_with_its_processes(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sleep = time.sleep
    monkeypatch.setattr(time, "sleep", lambda seconds: sleep(min(seconds, 0.5)))
    waits = "import subprocess, sys\nsubprocess.run([sys.executable, '-c', 'import time; time.sleep(60)'])\n"
    (folder / "scripts" / "lora-16bit.py").write_text(waits)
    found = grpo.run(folder, "lora-16bit/1", ["0"], seconds=1)
    assert (found["code"] != 0, found["ended"], found["left"]) == (True, "ended by us", [])
    assert not [line for line in running("BENCH_RUN=").values() if str(folder) in line]


def test_timed_jobs_go_on_wave_by_wave(folder: Path) -> None:
    for name in ("sizes-1B", "sizes-3B"):
        (folder / "scripts" / f"{name}.py").write_text(TRAINING)
    timed = grpo.Timed(grpo.Bench(folder, 60, 60, 0), ["sizes-1B/1@0", "sizes-3B/1@1"])
    assert not (folder / "grpo.json").exists()
    timed.open()
    assert list(kept(folder)) == ["sizes-1B/1", "sizes-3B/1"]


def test_a_server_has_the_last_gpu_to_itself(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    served = list[tuple[str, str]]()

    def serve(case: grpo_cases.Case, gpu: str, *_: object) -> AbstractContextManager[None]:
        served.append((case.model, gpu))
        return nullcontext()

    monkeypatch.setattr(grpo, "server", serve)
    (folder / "scripts" / "server.py").write_text(TRAINING)
    bench = grpo.Bench(folder, 60, 60, 0)
    assert bench.task("server/1").gpus == 2
    assert bench.do("server/1", ["0", "1"])
    assert served == [("Llama-small", "1")]
    assert (folder / "runs" / "server-1" / "log").read_text() == "sees 0\n"


def test_a_start_gets_the_environment_that_is_wrong(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(["/site", "/site_vllm"]))
    path = grpo.environment(folder, "start-no-vllm", folder, ["0"], None)["PYTHONPATH"].split(os.pathsep)
    assert ("/site" in path, "/site_vllm" in path) == (True, False)
    older = grpo.environment(folder, "start-older-vllm", folder, ["0"], None)["PYTHONPATH"]
    assert "Version: 0.9.0" in next(Path(older.split(os.pathsep)[3]).glob("vllm-*/METADATA")).read_text()
    assert "PYTORCH_ALLOC_CONF" in grpo.environment(folder, "start-allocator", folder, ["0"], None)
