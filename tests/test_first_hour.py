"""The page about the first hour says what the commands print today."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.first_hour import BLOCK, PAGE, PICTURE, STEPS, command_of, picture, play, shown


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
            assert printed == written


def test_the_picture_is_of_the_page() -> None:
    assert PICTURE.read_text(encoding="utf-8") == picture(shown(PAGE.read_text(encoding="utf-8")))


@pytest.mark.e2e
def test_the_rehearsal_ends_well(tmp_path: Path, environment: dict[str, str]) -> None:
    folder = tmp_path / "work"
    folder.mkdir()
    (rehearsal,) = [block for block in BLOCK.findall(PAGE.read_text(encoding="utf-8")) if "nb2ddp rehearse" in block]
    steps = [step for step in STEPS if not step.commands[0].startswith("python3 -m venv")]
    (printed,) = [text for step, text in play(folder, environment, slow=True, steps=steps[:4]) if "rehearse" in text]
    assert [line[:56].rstrip() for line in printed.splitlines()] == [
        line[:56].rstrip() for line in rehearsal.splitlines()
    ]
