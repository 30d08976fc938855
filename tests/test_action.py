"""The steps of the GitHub Action, run as GitHub's runner runs them."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.command import files
from tests.notebooks import CELLS, write

ROOT = Path(__file__).parent.parent
ACTION: dict[str, Any] = yaml.safe_load((ROOT / "action.yml").read_text(encoding="utf-8"))
pytestmark = pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")


class Runner:
    """The environment that GitHub's runner gives to a composite action."""

    def __init__(self, folder: Path) -> None:
        self.workspace = folder / "workspace"
        self.temp = folder / "temp"
        self.summary = folder / "summary.md"
        self.output = folder / "output"
        self.variables: dict[str, str] = {}
        self.workspace.mkdir()
        self.temp.mkdir()

    def step(self, number: int, **inputs: str) -> subprocess.CompletedProcess[str]:
        """Run one step with the inputs, or their defaults, in its environment."""
        step = ACTION["runs"]["steps"][number]
        values = {name: spec["default"] for name, spec in ACTION["inputs"].items()}
        values |= {name.replace("_", "-"): value for name, value in inputs.items()}
        context = {f"inputs.{name}": value for name, value in values.items()}
        context |= {"github.action_path": str(ROOT)}
        environment = {
            name: re.sub(r"\$\{\{ (\S+) \}\}", lambda match: context[match[1]], value)
            for name, value in step["env"].items()
        }
        runner = {
            "RUNNER_TEMP": str(self.temp),
            "GITHUB_STEP_SUMMARY": str(self.summary),
            "GITHUB_OUTPUT": str(self.output),
            "NB2DDP_CACHE_DIR": str(self.temp / "cache"),
            **self.variables,
        }
        return subprocess.run(
            ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]],
            cwd=self.workspace,
            env={**os.environ, **runner, **environment},
            capture_output=True,
            text=True,
            check=False,
        )

    def install_this_project(self) -> None:
        """Replace the first step with a command that runs this folder's nb2ddp with this Python."""
        command = self.temp / "nb2ddp" / "bin" / "nb2ddp"
        command.parent.mkdir(parents=True)
        command.write_text(f'#!/bin/sh\nPYTHONPATH="{ROOT}" exec "{sys.executable}" -m nb2ddp "$@"\n')
        command.chmod(0o755)


@pytest.fixture
def runner(tmp_path: Path) -> Runner:
    made = Runner(tmp_path)
    made.install_this_project()
    return made


def test_no_step_pastes_an_expression_into_its_script() -> None:
    """The shell would run an input that is part of a script's text."""
    for step in ACTION["runs"]["steps"]:
        assert "${{" not in step["run"]
    used = {name for step in ACTION["runs"]["steps"] for name in re.findall(r"inputs\.([\w-]+)", str(step))}
    assert used == set(ACTION["inputs"])


def test_check_annotates_and_summarizes(runner: Runner) -> None:
    write(runner.workspace / "nb/a.ipynb")
    write(runner.workspace / "nb/b.ipynb", "x = = 1")
    done = runner.step(1, paths="nb", arguments="--output=scripts")
    assert done.returncode == 2
    lines = [line for line in done.stdout.splitlines() if line.startswith("::")]
    assert lines[0].startswith("::error file=nb/a.ipynb,line=1,title=DDP901 script-out-of-date::scripts/a.py does ")
    assert lines[1].startswith("::error file=nb/b.ipynb,line=")
    assert runner.output.read_text() == "exit-code=2\n"
    summary = runner.summary.read_text()
    assert summary.startswith("## nb2ddp\n\n2 notebooks: 1 out of date, 1 failed; ")
    assert "| nb/a.ipynb | scripts/a.py | out of date | 1 | 0 |" in summary
    assert files(runner.workspace) == {"nb/a.ipynb", "nb/b.ipynb"}


def test_the_summary_shows_what_is_out_of_date_and_says_what_was_edited(runner: Runner) -> None:
    notebook = write(runner.workspace / "nb/a.ipynb")
    runner.step(1, paths="nb", arguments="--output=scripts", mode="convert")
    script = runner.workspace / "scripts/a.py"
    script.write_text(script.read_text().replace("per_device_batch,", "1,  # mine\n    "))
    edited = runner.step(1, paths="nb", arguments="--output=scripts")
    assert edited.returncode == 0
    assert "::warning file=nb/a.ipynb,line=1,title=DDP904 edited-by-hand::" in edited.stdout
    write(notebook, *CELLS, "x = '```'")
    assert runner.step(1, paths="nb", arguments="--output=scripts").returncode == 1
    summary = runner.summary.read_text()
    assert "\n````diff\n--- scripts/a.py\n+++ scripts/a.py\n" in summary
    assert "\n+x = '```'\n````\n" in summary


def test_the_summary_shows_both_sides_of_a_conflict(runner: Runner) -> None:
    notebook = write(runner.workspace / "a.ipynb")
    runner.step(1, paths="a.ipynb", arguments="--output=o", mode="convert")
    script = runner.workspace / "o/a.py"
    script.write_text(script.read_text().replace('"lora"', '"mine"'))
    write(notebook, *CELLS[:-1], 'model.save_pretrained("theirs")')
    assert runner.step(1, paths="a.ipynb", arguments="--output=o").returncode == 2
    summary = runner.summary.read_text()
    assert "New lines of a.ipynb that conflict with your edits" in summary
    assert '\n<<<<<<< edited\nmodel.save_pretrained("mine")\n' in summary


def test_convert_then_check_passes(runner: Runner) -> None:
    write(runner.workspace / "nb one/a.ipynb")
    write(runner.workspace / "two/b.ipynb")
    inputs = {"paths": "nb one\ntwo\n", "arguments": "--output=out put"}
    assert runner.step(1, mode="convert", **inputs).returncode == 0
    assert files(runner.workspace / "out put") == {"a.py", "b.py", "accelerate_config.yaml"}
    assert runner.step(1, **inputs).returncode == 0
    assert runner.output.read_text() == "exit-code=0\nexit-code=0\n"


@pytest.mark.parametrize(
    "inputs",
    [
        {"mode": "$(touch evil)"},
        {"paths": "`touch evil`\n; touch evil\n--output=evil"},
        {"arguments": '--output="; touch evil; "\n$(touch evil)', "mode": "convert"},
    ],
)
def test_no_input_is_run(runner: Runner, inputs: dict[str, str]) -> None:
    write(runner.workspace / "a.ipynb")
    runner.step(1, **{"paths": "a.ipynb", **inputs})
    assert "evil" not in {path.name for path in runner.workspace.rglob("*")}


@pytest.mark.slow
def test_the_first_step_installs_the_command(tmp_path: Path) -> None:
    runner = Runner(tmp_path)
    done = runner.step(0, python=sys.executable)
    assert done.returncode == 0, done.stderr
    write(runner.workspace / "a.ipynb")
    assert runner.step(1, paths="a.ipynb", arguments="--output=out", mode="convert").returncode == 0


@pytest.mark.skipif(shutil.which("shellcheck") is None, reason="needs shellcheck")
def test_the_script_is_clean_shell() -> None:
    subprocess.run(["shellcheck", str(ROOT / "action" / "run.sh")], check=True)
