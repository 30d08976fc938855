"""Code that is removed together with a notebook's installs: the rest must run as before."""

from __future__ import annotations

import contextlib
import io

from nb2ddp.convert import convert_source
from nb2ddp.options import Options
from nb2ddp.rules.hosted import package_install
from tests.examples import table
from tests.notebooks import CELLS, apply_rule, text

TRAIN = "from trl import SFTTrainer\ntrainer = SFTTrainer()\ntrainer.train()"


@table(__file__, "runs as before")
def test_what_stays_runs_as_before(code: str, answers: list[str]) -> None:
    """Run cells whose installs do nothing here, and compare what they print."""
    before = "".join(
        "pass\n".rjust(len(line) - len(line.lstrip()) + 5) if line.strip()[0] in "!%" else line
        for line in f"{code}\n".splitlines(keepends=True)
    )
    after = apply_rule(package_install, f"{code}\n", Options())
    assert "pip" not in after
    assert _printed(after) == _printed(before) != ""


def _printed(code: str) -> str:
    with contextlib.redirect_stdout(io.StringIO()) as out:
        exec(code, {})
    return out.getvalue()


@table(__file__, "left")
def test_what_serves_installs_alone_goes(code: str, answers: list[str]) -> None:
    assert apply_rule(package_install, f"{code}\n", Options()).rstrip("\n") == "".join(answers)


@table(__file__, "files")
def test_files_that_list_packages_are_named(code: str, answers: list[str]) -> None:
    messages = [each.message for each in convert_source(text(code, *CELLS[1:])).diagnostics if each.code == "DDP306"]
    found = [message for message in messages if "pip install -r" in message]
    assert [answer for answer, message in zip(answers, found, strict=True) if answer in message] == answers


@table(__file__, "announced")
def test_what_announces_a_line_that_leaves_leaves_with_it(code: str, answers: list[str]) -> None:
    script = convert_source(text(code, TRAIN)).files["train.py"]
    lines = script[script.index("# %% Cell") :].splitlines()
    assert [line for line in lines if line.startswith("print(")] == answers
