"""All ranks share the same rows, even if each of them prepared different ones."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("datasets")

ROOT = Path(__file__).parents[2]
SCRIPT = """
import json, os, secrets
import torch
from accelerate import Accelerator
from datasets import Dataset, DatasetDict, load_dataset
from types import SimpleNamespace
from nb2ddp.runtime.rows import share_listed_rows, share_rows, share_streams

accelerator = Accelerator(cpu=True)
rank = accelerator.process_index

class Drawn(torch.utils.data.Dataset):
    def __init__(self):
        self.rows = [secrets.token_hex(4) for _ in range(120)]
    def __len__(self):
        return len(self.rows)
    def __getitem__(self, n):
        return {"x": torch.ones(2), "text": self.rows[n]}

def shared(train, evaluated=None):
    trainer = SimpleNamespace(accelerator=accelerator, train_dataset=train, eval_dataset=evaluated)
    share_rows(trainer)
    share_listed_rows(trainer)
    share_streams(trainer)
    return trainer.train_dataset, trainer.eval_dataset

drawn = Dataset.from_list([{"text": secrets.token_hex(4), "n": n} for n in range(1100 + rank)])
tagged = drawn.shuffle(seed=rank).with_transform(lambda part: {"tag": [f"<{each}>" for each in part["text"]]})
train, evaluated = shared(drawn, DatasetDict(a=tagged))
torch_rows, _ = shared(Drawn())
listed, _ = shared([{"text": each} for each in Drawn().rows])
stream, _ = shared(load_dataset("json", data_files=[f"{n}.jsonl" for n in range(4)], split="train", streaming=True))
batches = accelerator.prepare(torch.utils.data.DataLoader(stream, batch_size=2))
found = {
    "drawn": train["text"][:],
    "tagged": [row["tag"] for row in evaluated["a"]],
    "dict": type(evaluated).__name__,
    "torch": torch_rows.rows,
    "list": [row["text"] for row in listed],
    "stream": [batch["n"].tolist() for batch in batches],
}
with open(f"{rank}.json", "w") as file:
    json.dump(found, file)
accelerator.end_training()
"""


@pytest.mark.e2e
def test_ranks_train_on_the_rows_of_the_main_process(tmp_path: Path) -> None:
    numbers = iter(range(133))
    for file, length in enumerate((40, 40, 13, 40)):
        lines = "".join(json.dumps({"n": next(numbers)}) + "\n" for _ in range(length))
        (tmp_path / f"{file}.jsonl").write_text(lines)
    (tmp_path / "train.py").write_text(SCRIPT)
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2", "train.py"]
    env = {**os.environ, "PYTHONPATH": str(ROOT), "HF_HOME": str(tmp_path / "cache")}
    ended = subprocess.run(launch, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=120, check=False)
    assert ended.returncode == 0, ended.stderr
    main, other = (json.loads((tmp_path / f"{rank}.json").read_text()) for rank in range(2))
    shares = [main.pop("stream"), other.pop("stream")]
    assert main == other
    assert len(main["drawn"]) == 1100
    assert sorted(main["tagged"]) == sorted(f"<{text}>" for text in main["drawn"])
    assert main["dict"] == "DatasetDict"
    assert len(main["torch"]) == len(main["list"]) == 120
    assert ended.stdout.count("The processes prepared different rows") == 8  # two processes, four data sets
    streamed = [n for pair in zip(*shares, strict=True) for part in pair for n in part]
    assert streamed == [*range(133), *range(3)]  # the order of one process; accelerate fills the last batches
