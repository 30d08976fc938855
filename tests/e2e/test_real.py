"""Models and data sets come from the real hub or its cache, reduced in size; weights are never requested."""

from __future__ import annotations

import json
import os
import random
import socket
import sys
import time
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import transformers
from datasets import Dataset, Features, Image, Value, load_dataset
from huggingface_hub import HfApi

from nb2ddp.rehearsal import upstream
from nb2ddp.rehearsal.hub import origin_of
from nb2ddp.rehearsal.processes import Parent
from nb2ddp.rehearsal.stage import models, seeing, shapes
from nb2ddp.rehearsal.stage.real import write_card
from tests.e2e.served import Served

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.e2e

WORD = "Zedernholz"
SEEING = "unsloth/gemma-3-4b-it"
HINTS = {"used": ["text"], "splits": ["train", "dev"], "configs": ["default"], "rows": 200}


def publish(kind: str, name: str, folder: Path) -> None:
    """Build a model of 40 layers whose name does not show its family, or a data set with columns of no stand-in."""
    if name == "me/seeing":
        seeing.build(SEEING, folder)
        about = json.loads((folder / "config.json").read_text())
        about["text_config"] |= {"num_hidden_layers": 34, "layer_types": ["sliding_attention", "full_attention"] * 17}
        about["vision_config"]["num_hidden_layers"] = 27
        (folder / "config.json").write_text(json.dumps(about))
        return
    if kind == "models":
        words = models.tokenizer(models.model_of("qwen3"))
        words.add_tokens([WORD])
        words.save_pretrained(folder)
        about = {"num_hidden_layers": 40, "hidden_size": 5120, "vocab_size": 1000}
        transformers.Qwen3Config(architectures=["Qwen3ForCausalLM"], **about).save_pretrained(folder)
        (folder / "model.safetensors").write_bytes(b"weights")
        return
    made = [{"bild": {"bytes": shapes.png(random.Random(i)), "path": None}, "frage": str(i)} for i in range(100)]
    features = Features({"bild": Image(), "frage": Value("string")})
    Dataset.from_list(made, features=features).to_parquet(folder / "dev.parquet")
    write_card(folder, ["default"], ["dev"])


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A hub that takes the place of the real one."""
    hub = Served(tmp_path_factory.mktemp("real"), publish)
    yield hub
    hub.close()


@cache
def parent() -> Parent:
    return Parent(os.environ, sys.executable)


def made(kind: str, name: str, folder: Path, **environment: str) -> tuple[Path, str]:
    """Return the folder that a process builds for a repository, and the origin that the process records."""
    target = folder / kind / name.replace("/", "--")
    target.parent.mkdir(parents=True, exist_ok=True)
    request = {"kind": kind, "name": name, "folder": str(target), **(HINTS if kind == "datasets" else {"sees": True})}
    environ = {**os.environ, "HF_HOME": str(folder / "hf"), "REHEARSAL_CACHE": str(folder / "cache"), **environment}
    output = folder / target.name
    process = parent().start("build", json.dumps(request), environment=environ, folder=folder, output=output)
    assert process.wait() == 0, output.with_suffix(".err").read_text()
    return target, origin_of(target)


def is_small_qwen(folder: Path) -> bool:
    config = transformers.AutoConfig.from_pretrained(folder)
    assert (config.num_hidden_layers, config.hidden_size) == (2, 128)
    return config.model_type == "qwen3" and WORD in transformers.AutoTokenizer.from_pretrained(folder).get_vocab()


def test_model_of_the_hub(real: Served, tmp_path: Path) -> None:
    folder, origin = made("models", "me/big", tmp_path, HF_ENDPOINT=real.address)
    assert origin == "hub"
    assert is_small_qwen(folder)
    assert "config.json" in real.asked
    assert "model.safetensors" not in real.asked
    assert sorted(path.name for path in folder.parent.iterdir()) == ["me--big", "me--big.origin"]


def test_model_of_the_cache(real: Served, tmp_path: Path) -> None:
    HfApi(endpoint=real.address).snapshot_download("me/big", cache_dir=tmp_path / "cache")
    folder, origin = made("models", "me/big", tmp_path, HF_HUB_OFFLINE="1")
    assert origin == "cache"
    assert is_small_qwen(folder)


def test_model_that_sees(real: Served, tmp_path: Path) -> None:
    """The small model keeps its processor and its vision tower; tower and text model keep two layers each."""
    folder, origin = made("models", "me/seeing", tmp_path, HF_ENDPOINT=real.address)
    assert origin == "hub"
    config = transformers.AutoConfig.from_pretrained(folder)
    assert (config.vision_config.num_hidden_layers, config.text_config.num_hidden_layers) == (2, 2)
    assert "pixel_values" in transformers.AutoProcessor.from_pretrained(folder).model_input_names


@pytest.mark.parametrize(
    ("name", "family"),
    [
        (SEEING, "gemma3"),
        ("unsloth/whisper-large-v3", "whisper"),
        ("unsloth/Qwen2-VL-2B", "gemma3"),  # its own processor would need torchvision
    ],
)
def test_stand_in_that_sees_or_hears(name: str, family: str, tmp_path: Path) -> None:
    folder, origin = made("models", name, tmp_path, HF_HUB_OFFLINE="1")
    assert origin == "stand-in"
    assert transformers.AutoConfig.from_pretrained(folder).model_type == family


def test_first_rows_of_the_hub(real: Served, tmp_path: Path) -> None:
    folder, origin = made("datasets", "me/pictures", tmp_path, HF_ENDPOINT=real.address)
    assert origin == "hub"
    loaded = load_dataset(str(folder), split="dev", cache_dir=str(tmp_path / "loaded"))
    assert loaded.column_names == ["bild", "frage"]
    assert loaded["frage"][:65] == [*map(str, range(64)), "0"]
    assert len(loaded) == 256
    assert loaded[0]["bild"].size == (32, 32)


def test_what_the_hub_does_not_have_has_a_stand_in(real: Served, tmp_path: Path) -> None:
    folder, origin = made("models", "no-such-model", tmp_path, HF_ENDPOINT=real.address)
    assert origin == "stand-in"
    assert transformers.AutoConfig.from_pretrained(folder).model_type == "gemma3"  # it must see


def test_stand_ins_without_a_network(tmp_path: Path) -> None:
    _, origin = made("models", "me/no-such-model", tmp_path, HF_HUB_OFFLINE="1")
    assert origin == "stand-in"
    with pytest.raises(
        AssertionError, match="neither the hub nor its cache has it"
    ):  # stand-in rows are made where they are read
        made("datasets", "me/pictures", tmp_path, HF_HUB_OFFLINE="1")


def test_hub_that_does_not_answer_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{silent.getsockname()[1]}")
        start = time.monotonic()
        assert upstream.environment(offline=False)["HF_HUB_OFFLINE"] == "1"
        assert time.monotonic() - start < 6


def test_only_builders_may_ask_the_hub(real: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_ENDPOINT", real.address)
    monkeypatch.setenv("HF_TOKEN", "mine")
    online, offline = (upstream.environment(offline=each) for each in (False, True))
    assert (online["HF_ENDPOINT"], online["HF_TOKEN"]) == (real.address, "mine")
    assert "HF_HUB_OFFLINE" not in online
    assert sorted(offline) == ["HF_HUB_OFFLINE", "REHEARSAL_CACHE"]
