"""Each fixture's script, byte for byte.

`python -m tests.test_golden` writes the expected scripts anew; review the difference before it is committed.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from nb2ddp.convert import convert_source

FIXTURES = Path(__file__).parent.parent / "fixtures"
NOTEBOOKS = sorted((FIXTURES / "notebooks").glob("*.ipynb"))


def expected(notebook: Path) -> Path:
    return FIXTURES / "expected" / f"{notebook.stem}.py"


def actual(notebook: Path) -> str:
    script = f"{notebook.stem}.py"
    return convert_source(notebook.read_text(encoding="utf-8"), notebook.stem, script).files[script]


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_golden(notebook: Path) -> None:
    assert actual(notebook) == expected(notebook).read_text(encoding="utf-8")


def test_no_golden_without_a_notebook() -> None:
    assert {path.stem for path in (FIXTURES / "expected").glob("*.py")} == {path.stem for path in NOTEBOOKS}


if __name__ == "__main__":
    for path in NOTEBOOKS:
        expected(path).parent.mkdir(exist_ok=True)
        expected(path).write_text(actual(path), encoding="utf-8")
