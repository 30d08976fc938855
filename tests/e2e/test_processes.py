"""Processes that are copies of a parent: each has its own environment, files, random numbers and exit code."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from nb2ddp.rehearsal.hub import Hub
from nb2ddp.rehearsal.processes import Parent, Process

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.e2e

SCRIPT = """
import os, random, sys
import numpy, torch
os.environ.setdefault("GIVEN", "by the script")
print(os.environ["MINE"], os.getcwd(), os.getsid(0) == os.getpid(), sys.argv)
print(random.random(), numpy.random.rand())
print(torch.distributed.all_reduce.__module__, torch.zeros(1, device = "cuda").device, torch.cuda.current_device())
print(hash("text"), [name for name in ("transformers", "trl", "datasets") if name in sys.modules])
sys.exit(int(os.environ["RANK"]))
"""


@pytest.fixture(scope="module")
def starter() -> Iterator[Parent]:
    made = Parent(os.environ, sys.executable)
    yield made
    made.close()


def play(starter: Parent, folder: Path, rank: int | None, text: str = SCRIPT) -> Process:
    """Start a process of a job or, without a rank, the only one of a run that learns what made-up data must contain."""
    script = folder / "train.py"
    if not script.exists() or script.read_text() != text:  # another process may be reading it
        script.write_text(text)
    about: dict[str, Any] = {"logs": str(folder), "root": str(folder), "steps": 1, "trust": False}
    about |= {"schema": str(folder / "schema.json"), "rows": {}, "splits": []}
    about |= {"data": "", "beside": str(folder), "server": 9}
    environ = {**os.environ, "MINE": f"rank {rank}", "TMPDIR": str(folder)}
    if rank is not None:
        environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank)}
    environ |= {"HF_HUB_OFFLINE": "1", "HF_HUB_CACHE": str(folder / "hub"), "HF_HOME": str(folder / "hf")}
    environ["NB2DDP_REHEARSAL"] = json.dumps(about | {"unsloth": ""})
    return starter.start("play", str(script), environment=environ, folder=folder, output=folder / str(rank or 0))


def test_each_has_its_own(starter: Parent, tmp_path: Path) -> None:
    processes = [play(starter, tmp_path, rank) for rank in range(2)]
    assert [process.wait() for process in processes] == [0, 1]
    assert [process.poll() for process in processes] == [0, 1]
    outputs = [(tmp_path / f"{rank}.out").read_text().splitlines() for rank in range(2)]
    for rank, (first, _, devices, loaded) in enumerate(outputs):
        assert first == f"rank {rank} {tmp_path} True ['{tmp_path / 'train.py'}']"
        assert devices == f"torch.distributed.distributed_c10d cpu {rank}"
        assert loaded.endswith(" []")
        events = list(map(json.loads, (tmp_path / f"{rank}.jsonl").read_text().splitlines()))
        assert "End" in {event["kind"] for event in events}
    assert not set(outputs[0][1].split()) & set(outputs[1][1].split())


READS = """
import json, pathlib
import numpy, soundfile
from PIL import Image
print(Image.open("picture.jpg").size, soundfile.read("/content/sound.wav")[1])
print(list(json.load(open("rows.json"))[0]), pathlib.Path("lines.jsonl").read_text()[:9])
open("other.json".replace("other", "not_named"))
named = lambda row: row["frage"]
"""


def test_files_that_are_not_there(starter: Parent, tmp_path: Path) -> None:
    assert play(starter, tmp_path, None, READS).wait() == 0, (tmp_path / "0.err").read_text()
    output = (tmp_path / "0.out").read_text()
    assert output.endswith("(32, 32) 16000\n['frage'] {\"frage\":\n")
    events = list(map(json.loads, (tmp_path / "0.jsonl").read_text().splitlines()))
    missing = [event["name"] for event in events if event["kind"] == "Need" and event.get("made")]  # relative paths
    assert sorted(set(missing)) == ["lines.jsonl", "not_named.json", "picture.jpg", "rows.json", "sound.wav"]


STAND_INS = """
import torch, torchaudio.transforms
from snac import SNAC
print(list(SNAC.from_pretrained("x").encode(torch.ones(1, 1, 4096))))
print(torch.cuda.is_available())
"""


def test_what_is_not_installed_is_there(starter: Parent, tmp_path: Path) -> None:
    process = play(starter, tmp_path, 0, STAND_INS)
    assert process.wait() == 0, (tmp_path / "0.err").read_text()[-2000:]
    assert (tmp_path / "0.out").read_text().splitlines() == ["[]", "True"]


ASKS = """
from huggingface_hub import HfApi, create_repo, file_exists, hf_hub_download, login, snapshot_download, upload_file
login(token = "hf_mine")
print(open(hf_hub_download("me/small", "config.json", revision = "v2")).read(), file_exists("me/small", "other.json"))
print(open(snapshot_download("me/small", local_dir = "mine") + "/config.json").read())
print(create_repo("model").repo_id, HfApi().whoami()["name"])
print(upload_file(path_or_fileobj = b"x", path_in_repo = "a.txt", repo_id = "me/model").repo_url.repo_id)
snapshot_download("me/other")
"""


def test_hub_is_its_cache_and_takes_uploads(starter: Parent, tmp_path: Path) -> None:
    def build(request: dict[str, Any]) -> str:
        if request["name"] == "me/other":
            return "not here"
        Path(request["folder"]).mkdir()
        Path(request["folder"], "config.json").write_text("{}")
        return ""

    hub = Hub(tmp_path / "hub", build)
    assert play(starter, tmp_path, 0, ASKS).wait() == 1
    hub.close()
    output = (tmp_path / "0.out").read_text().splitlines()
    assert output == ["{} False", "{}", "rehearsal/model rehearsal", "me/model"], (tmp_path / "0.err").read_text()
    events = list(map(json.loads, (tmp_path / "0.jsonl").read_text().splitlines()))
    assert [event["to"] for event in events if event["kind"] == "Upload"] == ["model", "me/model"]
    assert "LocalEntryNotFound" in next(event["error"] for event in events if event["kind"] == "End")
    assert hub.offered == {("models", "me/small"): "", ("models", "me/other"): "not here"}


def test_one_that_is_killed(starter: Parent, tmp_path: Path) -> None:
    process = play(starter, tmp_path, 0, "import time\ntime.sleep(100)\n")
    while not (tmp_path / "0.jsonl").exists():
        time.sleep(0.1)
    assert process.poll() is None
    os.killpg(process.pid, signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL


def test_copies_end_with_their_parent(tmp_path: Path) -> None:
    parent = Parent(os.environ, sys.executable)
    process = play(parent, tmp_path, 0, "import time\ntime.sleep(100)\n")
    while not (tmp_path / "0.jsonl").exists():
        time.sleep(0.1)
    parent.close()
    assert process.wait() == -signal.SIGKILL
    with pytest.raises(OSError, match="has ended"):
        play(parent, tmp_path, 1)
