"""Fixtures for all tests."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import chdir
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from nb2ddp.cli.main import main
from nb2ddp.project.config import clear
from tests.command import Command

FIRST = ("test_weight", "test_rooms", "test_golden", "test_rules", "test_launch")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update", action="store_true", help="write expected files anew instead of comparing with them")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run first the test files in which most changes fail."""
    items.sort(key=lambda item: item.path.stem not in FIRST)


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[Path, str], None]:
    """Compare a text with an expected file, or, with `--update`, write the file."""

    def compare(expected: Path, text: str) -> None:
        if request.config.getoption("--update"):
            expected.parent.mkdir(parents=True, exist_ok=True)
            expected.write_text(text, encoding="utf-8")
        assert text == expected.read_text(encoding="utf-8"), "run pytest --update to rewrite the file"

    return compare


@pytest.fixture(autouse=True, scope="session")
def _elsewhere(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Run all tests in a separate folder, so that no file in the project's folder, such as a script, affects them."""
    with chdir(tmp_path_factory.mktemp("elsewhere")):
        yield


@pytest.fixture(autouse=True)
def _own_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep conversions out of the user's cache, and settings of one test out of the next."""
    monkeypatch.setenv("NB2DDP_CACHE_DIR", str(tmp_path_factory.mktemp("cache")))
    clear()


@pytest.fixture
def command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Command:
    """A function that runs the command in an empty folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("NO_COLOR", raising=False)

    def invoke(*arguments: str, stdin: str | bytes | None = None, color: bool = False) -> Result:
        clear()
        return CliRunner().invoke(main, list(arguments), input=stdin, color=color, prog_name="nb2ddp")

    return invoke
