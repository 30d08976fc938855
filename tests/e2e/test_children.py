"""Processes that a script starts do not run it again, however they start: like a notebook, it has no `__file__`."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from nb2ddp.convert import convert_source
from tests.e2e.test_alone import TRAIN
from tests.notebooks import text

pytestmark = pytest.mark.e2e

POOLS = """\
import inspect, math, multiprocessing, multiprocess, torch
from concurrent.futures import ProcessPoolExecutor
from datasets import Dataset
print("RUN")
def longer(row, rank):
    return {"long": len(row["text"]) + rank}
def collated(rows):
    return rows
rows = Dataset.from_dict({"text": ["a", "bb", "ccc", "dddd"]})
for method in ("fork", "forkserver", "spawn"):
    context = multiprocessing.get_context(method)
    with context.Pool(2) as pool:
        roots = pool.map(math.sqrt, [1, 4])
    with ProcessPoolExecutor(2, mp_context=context) as pool:
        roots += pool.map(math.sqrt, [9, 16])
    multiprocess.set_start_method(method, force=True)
    lengths = rows.map(longer, with_rank=True, num_proc=2, load_from_cache_file=False)["long"]
    loader = torch.utils.data.DataLoader(rows, num_workers=1, multiprocessing_context=method)
    print(method, roots, list(lengths), len(list(loader)))
loader = torch.utils.data.DataLoader(rows, num_workers=1, collate_fn=collated)
print("FORKED", len(list(loader)), inspect.getsource(longer)[:10])
print("COMPILED", torch.compile(lambda x: x * 2)(torch.ones(2)).tolist())
"""
FAILS = "def fail():\n    raise ValueError('told')\nfail()\n"


def test_children_do_not_run_the_script(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(convert_source(text(POOLS, TRAIN, FAILS)).files["train.py"])
    done = subprocess.run([sys.executable, script], cwd=tmp_path, capture_output=True, text=True, timeout=600)
    assert done.stdout.count("RUN") == 1
    for method in ("fork", "forkserver", "spawn"):
        assert f"{method} [1.0, 2.0, 3.0, 4.0] [1, 2, 4, 5] 4" in done.stdout
    assert "FORKED 4 def longer" in done.stdout
    assert "COMPILED [2.0, 2.0]" in done.stdout
    assert "raise ValueError('told')" in done.stderr


def test_code_that_reads_its_own_file_keeps_it() -> None:
    script = convert_source(text('print(__file__)\n"__file__"\n', TRAIN)).files["train.py"]
    assert 'pop("__file__"' not in script
    assert 'pop("__file__"' in convert_source(text('print("__file__")\n', TRAIN)).files["train.py"]
