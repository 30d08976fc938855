"""The page about the first hour says what the commands print today."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from tests.first_hour import BLOCK, CHECKS, PAGE, PICTURE, STEPS, command_of, picture, play, shown

#: Of a whole script, of which the page shows a few lines.
CHECKSUM = re.compile(r"sha256:\w{16}")


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    return command_of(tmp_path)


def test_quick_steps_print_what_the_page_says(tmp_path: Path, environment: dict[str, str]) -> None:
    folder = tmp_path / "work"
    folder.mkdir()
    text = PAGE.read_text(encoding="utf-8")
    blocks = BLOCK.findall(text)
    assert len(blocks) == len(STEPS)
    for (step, printed), written in zip(play(folder, environment, slow=False), blocks, strict=True):
        assert step.prose in text
        if not step.slow:
            assert CHECKSUM.sub("", printed) == CHECKSUM.sub("", written)


def test_the_picture_is_of_the_page() -> None:
    assert PICTURE.read_text(encoding="utf-8") == picture(shown(PAGE.read_text(encoding="utf-8")))


def test_what_readme_says_to_type_is_typed() -> None:
    """But for the checks, which `.ci/run` types."""
    typed = {command for step in STEPS for command in step.commands}
    readme = (PAGE.parent.parent / "README.md").read_text(encoding="utf-8")
    blocks = [block.split("```")[0] for block in readme.split("```sh\n")[1:]]
    assert {line for block in blocks for line in block.splitlines()} - typed == set(CHECKS) == {"python3 -m tests"}


@pytest.mark.e2e
def test_the_rehearsal_ends_well(tmp_path: Path, environment: dict[str, str]) -> None:
    folder = tmp_path / "work"
    folder.mkdir()
    (rehearsal,) = [block for block in BLOCK.findall(PAGE.read_text(encoding="utf-8")) if "nb2ddp rehearse" in block]
    at = next(number for number, step in enumerate(STEPS) if "nb2ddp rehearse -q train.py" in step.commands)
    rehearses = replace(STEPS[at], commands=STEPS[at].commands[-1:], slow=False)  # here in this Python's environment
    steps = [*(step for step in STEPS[:at] if not step.slow and not step.imitated), rehearses]
    *_, (_, printed) = play(folder, environment, slow=False, steps=steps)
    wanted = rehearsal[rehearsal.index("$ nb2ddp rehearse") :]
    assert [line[:56].rstrip() for line in printed.splitlines()] == [line[:56].rstrip() for line in wanted.splitlines()]
