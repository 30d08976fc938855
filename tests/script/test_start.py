"""What a script checks when several processes start, each block executed as a script has it."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from nb2ddp.convert import convert_source
from nb2ddp.options import Launch, Options
from nb2ddp.script.versions import GUARDS
from tests.notebooks import CELLS, text

PAGE = Path(__file__).parents[2] / "docs" / "launch.md"


def script(arguments: str = "", training: str = "trainer.train()", first: str = "", machines: int = 1) -> str:
    """The script of a notebook whose config has these further arguments."""
    trainer = CELLS[2].replace("gradient_accumulation_steps = 4", f"gradient_accumulation_steps = 4, {arguments}")
    notebook = text(*filter(None, [first]), CELLS[1], trainer.replace("trainer.train()", training))
    address = "10.0.0.1" if machines > 1 else None
    return convert_source(
        notebook, options=Options(launch=Launch(processes=2 * machines, machines=machines, main_process_ip=address))
    ).files["train.py"]


def execute(source: str, begin: str, end: str, **names: Any) -> None:
    start = source.index(begin)
    block = source[start : source.index(end, start)]
    exec(f"import glob, os, socket, sys, time\n{block}", names)


class TestFewerGpusThanProcesses:
    def start(self, monkeypatch: pytest.MonkeyPatch, processes: int | None, gpus: int, rank: int = 0) -> list[int]:
        """Execute the check on a machine with so many GPUs; returns what was set as this process's GPU."""
        chosen: list[int] = []
        cuda = SimpleNamespace(is_available=lambda: gpus > 0, device_count=lambda: gpus, set_device=chosen.append)
        if processes is None:
            monkeypatch.delenv("LOCAL_WORLD_SIZE", raising=False)
        else:
            monkeypatch.setenv("LOCAL_WORLD_SIZE", str(processes))
        monkeypatch.setattr("time.sleep", lambda seconds: chosen.append(-seconds))
        source = script()
        stop: dict[str, Any] = {}
        exec("import sys, time\n" + source[source.index("def stop") : source.index("if world_size > 1:")], stop)
        torch = SimpleNamespace(cuda=cuda)
        execute(source, "if torch.cuda", "# Unsloth's compiled", torch=torch, local_rank=rank, stop=stop["stop"])
        return chosen

    def test_the_first_process_of_the_machine_says_it(self, monkeypatch: pytest.MonkeyPatch) -> None:
        with pytest.raises(SystemExit, match=r"^\S+: 4 processes, but 2 GPU\(s\) to be seen$"):
            self.start(monkeypatch, 4, 2)

    def test_the_others_end_without_a_word_and_after_it(self, monkeypatch: pytest.MonkeyPatch) -> None:
        slept: list[float] = []
        source = script()
        names: dict[str, Any] = {}
        exec("import sys, time\n" + source[source.index("def stop") : source.index("if world_size > 1:")], names)
        monkeypatch.setattr("time.sleep", slept.append)
        with pytest.raises(SystemExit) as ended:
            names["stop"]("the reason", False)
        assert ended.value.code == 1
        assert 5 <= slept[0] <= 30

    @pytest.mark.parametrize(("processes", "gpus"), [(2, 2), (1, 4), (None, 1)])
    def test_enough(self, monkeypatch: pytest.MonkeyPatch, processes: int | None, gpus: int) -> None:
        assert self.start(monkeypatch, processes, gpus) == [0]

    def test_without_cuda(self, monkeypatch: pytest.MonkeyPatch) -> None:
        assert self.start(monkeypatch, 4, 0) == []


class TestCheckpointsOfAnotherRun:
    def warn(self, source: str, **names: Any) -> None:
        if "glob.glob" in source:
            names = {"world_size": 2, "is_main_process": True, "is_older": lambda *_: False, **names}
            execute(source, "if world_size > 1 and is_main_process and glob", "if torch.cuda", **names)

    @pytest.fixture(autouse=True)
    def _folder(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.chdir(tmp_path)

    @pytest.mark.parametrize("name", ["outputs", "out [1]/", "a/b", 'it"s'])
    def test_said_once_there_are_some(self, name: str, capsys: pytest.CaptureFixture[str]) -> None:
        source = script(f"output_dir = {name!r}")
        Path(name).mkdir(parents=True)
        self.warn(source)
        assert capsys.readouterr() == ("", "")
        (Path(name) / "checkpoint-60").mkdir()
        self.warn(source, world_size=1)
        self.warn(source, is_main_process=False)
        assert capsys.readouterr() == ("", "")
        self.warn(source)
        assert capsys.readouterr() == ("", f"{name} holds checkpoints of another run; this one adds its own\n")

    @pytest.mark.parametrize(
        "source",
        [
            script(),
            script("output_dir = folder"),
            script('output_dir = "o", save_strategy = "no"'),
            script('output_dir = "o", resume_from_checkpoint = "o/checkpoint-60"'),
            script('output_dir = "o"', training="trainer.train(resume_from_checkpoint = True)"),
            script('output_dir = "o"', training="trainer.train(resume_from_checkpoint = last)"),
            script('output_dir = "o"', first="%cd elsewhere"),
            script('output_dir = "o"', first='import os\nos.chdir("elsewhere")'),
        ],
    )
    def test_not_asked(self, source: str) -> None:
        assert "glob.glob" not in source

    @pytest.mark.parametrize("training", ["trainer.train(resume_from_checkpoint = False)", "trainer.train()"])
    def test_asked(self, training: str) -> None:
        assert 'glob.glob("o/checkpoint-*")' in script('output_dir = "o"', training=training)


class TestFoldersOfTheMachines:
    def test_one_machine_asks_nothing(self) -> None:
        assert "gather_object" not in script()

    @pytest.mark.parametrize(("folders", "said"), [(["/a", "/b", "/a"], "/a, /b"), (["/a", "/a"], "")])
    def test_several(
        self, folders: list[str], said: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        source = script(machines=2)
        assert source.index("timeout=timedelta(hours=2))") < source.index("folders =")
        execute(source, "folders =", "\nif world_size", gather_object=lambda _: folders, is_main_process=True)
        expected = f"The machines work in different folders: {said}\n" if said else ""
        assert capsys.readouterr() == ("", expected)


class TestWaiting:
    """The first process group decides how long a process waits, not `ddp_timeout`."""

    FIRST = "!wget -q https://example.org/rows.json"

    @pytest.mark.parametrize(
        ("arguments", "timeout"),
        [
            ("", "hours=2"),
            ("ddp_timeout = 1800", "hours=2"),
            ("ddp_timeout = 36000", "hours=10"),
            ("ddp_timeout = 10000", "seconds=10000"),
            ("ddp_timeout = seconds", "hours=2"),
        ],
    )
    def test_the_longer_one_counts(self, arguments: str, timeout: str) -> None:
        assert f"timeout=timedelta({timeout}))" in script(arguments, first=self.FIRST)

    def test_nothing_waits_where_nothing_is_waited_for(self) -> None:
        assert "timedelta" not in script("ddp_timeout = 36000")


@pytest.mark.e2e
def test_a_later_timeout_has_no_effect(tmp_path: Path) -> None:
    """What `wait_seconds` relies on, with the installed accelerate and transformers."""
    import subprocess

    (tmp_path / "job.py").write_text(
        "from datetime import timedelta\nfrom accelerate import PartialState\n"
        "PartialState(timeout=timedelta(hours=2))\n"
        "import torch\nfrom transformers import TrainingArguments\n"
        'TrainingArguments("o", ddp_timeout=5, use_cpu=True).device\n'
        "group = torch.distributed.distributed_c10d._get_default_group()\n"
        'print(group._get_backend(torch.device("cpu")).options._timeout)\n'
    )
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    done = subprocess.run([*launcher, "job.py"], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout.count("2:00:00") == 2


def test_the_page_names_every_guard() -> None:
    page = PAGE.read_text(encoding="utf-8")
    for guard in GUARDS:
        assert (
            f"| `{guard.package}` {guard.minimum} | {guard.problem} | {'stops' if guard.stops else 'says so'} |" in page
        )


@pytest.mark.parametrize(("world_size", "supervised", "rewarded"), [(1, (2, 2), (4, 1)), (2, (2, 1), (2, 1))])
def test_one_script_splits_samples_and_completions(
    world_size: int, supervised: tuple[int, int], rewarded: tuple[int, int]
) -> None:
    """A notebook that trains with SFT and then with GRPO calls one function for both."""
    trains = "from trl import {0}Config, {0}Trainer\n{0}Trainer(model = model, args = {0}Config({1})).train()"
    sizes = "per_device_train_batch_size = 2, gradient_accumulation_steps = 2"
    rewards = "per_device_train_batch_size = 1, gradient_accumulation_steps = 1, num_generations = 4"
    source = convert_source(text(*CELLS[:2], trains.format("SFT", sizes), trains.format("GRPO", rewards))).files[
        "train.py"
    ]
    assert "split_batch(2, 2)" in source
    assert "split_batch(1, 1, 4)" in source
    names: dict[str, Any] = {"world_size": world_size, "is_main_process": True, "is_older": lambda *_: False}
    exec(source[source.index("def split_batch") : source.index("# %% Cell")], names)
    assert names["split_batch"](2, 2) == supervised
    assert names["split_batch"](1, 1, 4) == rewarded
