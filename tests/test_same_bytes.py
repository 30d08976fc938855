"""Every process writes the same bytes: a conversion depends only on the notebook and the options.

It does not depend on the order of a set of nodes or texts, or on `id`. So a loop whose order matters never iterates
over a set, and nodes are sorted by a key that no two of them share: `Tree.in_order`. Each process here has its own
PYTHONHASHSEED, and hashes LibCST's nodes in its own order, as addresses do by chance.

The notebooks are the project's fixtures, one for each order that memory once decided, and, if the environment variable
NB2DDP_CORPUS names a folder, all those in it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterable
from hashlib import sha256
from pathlib import Path

import libcst as cst
import pytest

from nb2ddp.convert import convert_source
from nb2ddp.options import Launch, Options
from nb2ddp.results import NotebookError
from tests import notebooks

ROOT = Path(__file__).parent.parent
_SCORED = """!pip install {0}
from {0} import score
import json
with open('{0}.json', 'w') as file:
    json.dump(score(1), file)"""
#: Notebooks whose scripts once depended on the addresses of nodes that begin at one place; the first had 4 versions.
CELLS = {
    "imported_twice": [*notebooks.CELLS, _SCORED.format("rouge"), _SCORED.format("bleu")],  # a line and its statement
    "clocks": [  # calls in a chain, both of which differ between processes
        "from datetime import datetime\nfrom trl import SFTConfig\n"
        "args = SFTConfig(output_dir = datetime.now().astimezone().now().isoformat())",
        *notebooks.CELLS[1:],
    ],
    "server": [  # questions to a server in a chain
        "import subprocess, requests\nserver = subprocess.Popen(['vllm', 'serve', 'm', '--port', '8000'])\n"
        "rows = requests.post('http://localhost:8000/a').json().get('rows')",
        *notebooks.CELLS[1:],
    ],
}


def differing(paths: Iterable[Path]) -> list[str]:
    """Return the notebooks that become different files, messages or refusals in two processes."""
    given = json.dumps([str(path) for path in paths])
    command = [sys.executable, "-m", "tests.test_same_bytes"]
    jobs = [
        subprocess.Popen(
            [*command, str(seed)],
            cwd=ROOT,
            env={**os.environ, "PYTHONHASHSEED": str(seed)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for seed in (1, 2)
    ]
    first, second = (json.loads(job.communicate(given)[0]) for job in jobs)
    return [name for name, digest in first.items() if second[name] != digest]


def test_memory_decides_nothing(tmp_path: Path) -> None:
    made = [notebooks.write(tmp_path / f"{name}.ipynb", *cells) for name, cells in CELLS.items()]
    assert differing([*made, *(ROOT / "fixtures").glob("*/*.ipynb")]) == []


@pytest.mark.slow
@pytest.mark.skipif("NB2DDP_CORPUS" not in os.environ, reason="NB2DDP_CORPUS names no folder of public notebooks")
def test_memory_decides_nothing_in_the_corpus() -> None:
    assert differing(sorted(Path(os.environ["NB2DDP_CORPUS"]).glob("*.ipynb"))[::4]) == []


def digest(path: Path) -> str:
    """Return a digest of all results of a notebook, with packages in a file and in the script."""
    made = []
    for launcher in ("accelerate", "uv"):
        options = Options(launch=Launch(launcher=launcher))
        try:
            done = convert_source(path.read_text(encoding="utf-8-sig"), path.stem, "train.py", options, path.name)
            made.append(repr((list(done.files.items()), done.diagnostics)))
        except NotebookError as error:
            made.append(repr(error.diagnostic))
    return sha256("".join(made).encode()).hexdigest()


def shuffle(kind: type[cst.CSTNode], salt: int) -> None:
    """Hash the nodes of a class and of its subclasses by their addresses and a number."""
    kind.__hash__ = lambda node: hash((salt, id(node)))  # type: ignore[assignment, method-assign]
    for below in kind.__subclasses__():
        shuffle(below, salt)


if __name__ == "__main__":
    shuffle(cst.CSTNode, int(sys.argv[1]))  # type: ignore[type-abstract]
    print(json.dumps({name: digest(Path(name)) for name in json.load(sys.stdin)}))
