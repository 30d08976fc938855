"""Environments for rehearsals: what is requested, who makes them, and which are kept. A stand-in replaces `uv`."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from nb2ddp.cli.main import main
from nb2ddp.rehearsal import environments, report, uv
from nb2ddp.rehearsal.environments import Environment, Wanted, made
from nb2ddp.rehearsal.plan import Plan
from nb2ddp.rehearsal.run import Rank, Run
from nb2ddp.rehearsal.stage.events import End
from nb2ddp.rehearsal.verdict import Verdict, judge
from nb2ddp.versions import tables, version_text
from tests.notebooks import write

FILES = {
    "train.py": "import torch\n",
    "train.requirements.txt": "# The packages.\n--find-links wheels\ntransformers==4.56.2\ntrl==0.22.2\nxformers\n",
}
WANTED = Wanted(("--find-links wheels", "transformers==4.56.2", "trl==0.22.2", "xformers"))
LOCK = "torch==2.13.0+cpu\ntorchvision==0.28.0\ntransformers==4.56.2\n"


class Uv:
    """A stand-in that records what it is asked to resolve and to install."""

    def __init__(self) -> None:
        self.asked: list[dict[str, Any]] = []
        self.installed: list[str] = []
        self.fails: Callable[[Sequence[str]], bool] = lambda lines: False

    def resolved(self, lines: Sequence[str], folder: Path, **given: Any) -> str:
        self.asked.append({"lines": list(lines), **given})
        if self.fails(lines):
            raise uv.UvError("no index answers")
        return LOCK

    def install(self, lock: Path, folder: Path, *, python: str, is_shown: bool) -> None:
        self.installed.append(lock.read_text())
        (folder / "bin").mkdir(parents=True)
        (folder / "bin" / "python").symlink_to(sys.executable)


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Uv:
    found = Uv()
    monkeypatch.setattr(uv, "resolved", found.resolved)
    monkeypatch.setattr(uv, "install", found.install)
    return found


def make(folder: Path, wanted: Wanted = WANTED) -> Environment:
    return made(wanted, ("transformers", "unsloth"), "the notebook's versions", lambda _: None, folder=folder)


def test_requirements_files_say_what_is_wanted() -> None:
    assert Wanted.of(FILES) == WANTED


def test_a_set_replaces_the_versions_of_the_notebook() -> None:
    wanted = Wanted(("transformers==4.51.0", "jiwer==4.0", "--find-links wheels", "trl==0.22.2"))
    lines = wanted.with_versions("newest").lines
    assert {"jiwer==4.0", "--find-links wheels", f"trl=={tables()['newest']['trl']}"} <= set(lines)
    assert not {"transformers==4.51.0", "trl==0.22.2"} & set(lines)


def test_an_environment_is_made_once(fake: Uv, tmp_path: Path) -> None:
    first, second = make(tmp_path), make(tmp_path)
    assert first.python == second.python
    assert Path(first.python).is_relative_to(tmp_path)
    assert len(fake.asked) == len(fake.installed) == 1
    assert not list(tmp_path.glob("new-*"))


def test_what_needs_a_gpu_and_what_fits_no_torch_is_left_out_and_said(fake: Uv, tmp_path: Path) -> None:
    environment = make(tmp_path)
    assert environment.notes == (
        "left out because they need a GPU: xformers",
        "left out because no index has them for this build of torch: torchvision",
    )
    assert fake.installed == ["torch==2.13.0+cpu\ntransformers==4.56.2\n"]
    lines = fake.asked[0]["lines"]
    assert "xformers" not in lines
    assert {"--find-links wheels", "trl==0.22.2", "unsloth", "torch", "psutil"} <= set(lines)
    assert f"torch=={tables()['cpu']['torch']}" in lines
    assert "xformers" in fake.asked[0]["excluded"]


def test_another_torch_than_that_of_the_tests_is_taken_where_it_must_be(fake: Uv, tmp_path: Path) -> None:
    fake.fails = lambda lines: len(fake.asked) < 2
    make(tmp_path)
    pin = f"torch=={tables()['cpu']['torch']}"
    assert [pin in asked["lines"] for asked in fake.asked] == [True, False]


def test_what_was_made_does_where_no_index_answers(fake: Uv, tmp_path: Path) -> None:
    made_before = make(tmp_path)
    fake.fails = lambda lines: True
    assert make(tmp_path) == made_before
    with pytest.raises(uv.UvError, match="no index answers"):
        make(tmp_path, Wanted(("trl==0.1",)))
    assert not list(tmp_path.glob("new-*"))


def test_those_used_last_are_kept(fake: Uv, tmp_path: Path) -> None:
    places = [tmp_path / f"{number:016x}" for number in range(environments.KEPT + 2)]
    for number, place in enumerate(places):
        place.mkdir()
        os.utime(place, (time.time() - 10_000 - number,) * 2)
    make(tmp_path)
    assert [place.exists() for place in places] == [True] * (environments.KEPT - 1) + [False] * 3


def test_without_uv_one_line_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(uv, "found", lambda: None)
    notebook = str(write(tmp_path / "tune.ipynb"))
    result = CliRunner().invoke(main, ["rehearse", notebook, "--versions", "notebook"])
    message = "uv makes an environment with these versions, but it is not installed: pip install uv"
    assert result.exit_code == 2
    assert result.output == f"asking the package index for versions\n{notebook}: {message}\n"


@pytest.fixture
def rehearsed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., str]:
    """A function that rehearses a notebook. The environment here lacks a name that the notebook uses."""
    error = End(1, 1, "ImportError", "cannot import 'x'", line=1)

    def judged(plan: Plan, *_: object) -> Verdict:
        rank = Rank(0, (), "", "") if plan.environment.is_notebooks else Rank(1, (error,), "", "")
        run = Run((rank,), 1.0, "")
        return judge(plan, run, run)

    def made(wanted: Wanted, libraries: Sequence[str], name: str, tell: object) -> Environment:
        return Environment(sys.executable, name, dict.fromkeys(libraries, "1"))

    def rehearse(present: Sequence[str], *options: str) -> str:
        monkeypatch.setattr(environments, "here", lambda: made(WANTED, present, "this environment", None))
        notebook = write(tmp_path / "tune.ipynb")
        return CliRunner().invoke(main, ["rehearse", str(notebook), "--offline", *options]).output

    monkeypatch.setattr("nb2ddp.rehearsal.rehearse.rehearse", judged)
    monkeypatch.setattr(environments, "made", made)
    monkeypatch.setattr(uv, "found", lambda: "uv")
    return rehearse


ALL = environments.LIBRARIES


@pytest.mark.parametrize(
    ("present", "options", "name"),
    [
        (ALL[:-1], (), "the notebook's versions, as unsloth is not installed here:"),
        # The first verdict is for this environment. With `--versions here`, it stays.
        (ALL, (), "the notebook's versions, because those here lack names or arguments that the script uses:"),
        (ALL, ("--versions", "here"), "this environment:"),
        (ALL, ("--versions", "notebook"), "the notebook's versions:"),
        ((), ("--versions", "newest"), "the newest versions:"),
    ],
)
def test_where_a_script_is_rehearsed(
    present: Sequence[str], options: tuple[str, ...], name: str, rehearsed: Callable[..., str]
) -> None:
    output = rehearsed(present, *options)
    assert f", in {name}" in output
    assert ("rehearse with --versions notebook" in output) is ("notebook's" not in name)


def test_the_first_lines_say_which_versions(tmp_path: Path) -> None:
    have = {"unsloth": "2026.10.9", "transformers": "5.17.0", "trl": "1.15.0", "torch": "2.13.0+cpu"}
    where = Environment(sys.executable, "this environment", have)
    other = tuple(WANTED.lacks(where))
    plan = Plan("a.py", "", tmp_path, (), "real", (), {}, (), environment=where, other_versions=other)
    run = Run((Rank(0, (), "", ""),), 1.0, "")
    assert list(report.text_lines(judge(plan, run, run)))[1:3] == [
        f"  Unsloth's own CPU backend, in this environment: {version_text(have)}",
        "  The notebook asks for transformers==4.56.2, trl==0.22.2: rehearse with --versions notebook",
    ]


def test_uv_is_told_what_pip_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in [name for name in os.environ if name.startswith(("UV_", "PIP_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    (tmp_path / "pip").mkdir()
    (tmp_path / "pip" / "pip.conf").write_text("[global]\nindex-url = https://mirror.example.com/simple\n")
    monkeypatch.setenv("PIP_FIND_LINKS", "/one /two")
    uv.settings.cache_clear()
    settings = uv.settings()
    assert settings["UV_DEFAULT_INDEX"] == "https://mirror.example.com/simple"
    assert settings["UV_FIND_LINKS"] == "/one,/two"
    assert settings["UV_INDEX_STRATEGY"] == "unsafe-best-match"
    monkeypatch.setenv("UV_DEFAULT_INDEX", "https://own.example.com")
    uv.settings.cache_clear()
    assert uv.settings() == dict(os.environ)
    uv.settings.cache_clear()
