"""The same bytes from every process: what is converted follows from the notebook and the options alone.

The notebooks are the project's fixtures, one for each order that memory once decided, and, where the environment
variable NB2DDP_CORPUS names a folder, or several with `:` between them, all of theirs.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests import notebooks
from tests.same_bytes import differing, found

FIXTURES = Path(__file__).parent.parent / "fixtures"
CORPUS = [Path(each) for each in os.environ.get("NB2DDP_CORPUS", "").split(os.pathsep) if each]

_SCORED = """!pip install {0}
from {0} import score
import json
with open('{0}.json', 'w') as file:
    json.dump(score(1), file)"""
#: What nodes that begin at one place decided in the order of their addresses; the first came out in four versions.
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


def test_memory_decides_nothing(tmp_path: Path) -> None:
    made = [notebooks.write(tmp_path / f"{name}.ipynb", *cells) for name, cells in CELLS.items()]
    assert differing([*made, *found([FIXTURES / "notebooks", FIXTURES / "constructs"])]) == []


@pytest.mark.slow
@pytest.mark.skipif(not CORPUS, reason="NB2DDP_CORPUS names no folder of public notebooks")
def test_memory_decides_nothing_in_the_corpus() -> None:
    assert differing(found(CORPUS)) == []
