"""Every converted script is executed, on one process and on two, with every library imitated (`tests.imitation`).

The notebooks are the project's fixtures and, where the environment variable NB2DDP_CORPUS names a folder, all of its
and of the folders `variants` and `molab` beside it.
"""

from __future__ import annotations

import os
from fnmatch import fnmatch
from pathlib import Path

import pytest

from nb2ddp.convert import convert_source
from nb2ddp.results import NotebookError
from tests.imitation.check import differences
from tests.imitation.notebook import cells

ROOT = Path(__file__).parent.parent
FOLDERS = [ROOT / "fixtures" / "notebooks"]
if "NB2DDP_CORPUS" in os.environ:
    CORPUS = Path(os.environ["NB2DDP_CORPUS"])
    FOLDERS += [CORPUS, CORPUS.parent / "variants", CORPUS.parent / "molab"]
#: What scripts still do wrong: notebooks, and the kind of each difference. Mended: take the line away.
KNOWN = {
    "*Openenv_wordle_grpo": {"both ask"},  # one server with a state, met by every process
}


@pytest.mark.parametrize(
    "path",
    [
        pytest.param(path, id=f"{path.parent.name}-{path.stem}")
        for folder in FOLDERS
        for path in sorted(folder.glob("*"))
        if path.suffix in (".ipynb", ".py")
    ],
)
def test_every_process_does_what_it_should(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    try:
        script = convert_source(text, path.stem, "train.py").files["train.py"]
    except NotebookError:
        return  # tests/test_corpus.py says which notebooks may be refused, and how
    found = differences(script, cells(text))
    known = {kind for name, kinds in KNOWN.items() if fnmatch(path.stem, name) for kind in kinds}
    assert {difference.kind for difference in found} == known, "\n".join(map(str, found))
