"""README's third command, run in a clone where only uv is installed: two processes train with Unsloth on a CPU."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest

from nb2ddp.rehearsal.stage import models
from tests.checkout import copy
from tests.e2e.with_uv import with_uv

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
((LINE, SHOWN),) = re.findall(r"(?s)```console\n\$ (uvx [^\n]* nb2ddp run [^\n]*)\n(.*?)```", README)
LIMIT = 500  # seconds; most of them for downloads, the first time

pytestmark = pytest.mark.e2e


@pytest.mark.timeout(LIMIT + 60)
def test_the_example_trains_where_nothing_is_installed(tmp_path: Path) -> None:
    clone = copy(tmp_path / "nb2ddp")
    # A folder with the name of a repository takes precedence over the hub.
    model = clone / "unsloth" / "Llama-3.2-1B"
    model.mkdir(parents=True)
    models.build_model("unsloth/Llama-3.2-1B", model)
    # transformers 4, which the notebook asks for, knows neither this class nor this list
    settings = model / "tokenizer_config.json"
    about = json.loads(settings.read_text())
    assert about.pop("extra_special_tokens", []) == []
    settings.write_text(json.dumps({**about, "tokenizer_class": "PreTrainedTokenizerFast"}))
    rows = [{"instruction": f"Count to {n}.", "input": "", "output": "1 2 3"} for n in range(200)]
    (clone / "yahma" / "alpaca-cleaned").mkdir(parents=True)
    (clone / "yahma" / "alpaca-cleaned" / "train.json").write_text(json.dumps(rows))
    _, *words = shlex.split(LINE)
    cache = str(tmp_path / "cache")
    done = with_uv(*words, folder=clone, seconds=LIMIT, HF_HUB_OFFLINE="1", NB2DDP_CACHE_DIR=cache)
    for part in re.split(r"\.\.\.|\n|[\d.]{4,}", SHOWN):  # losses and seconds may differ
        assert part.strip() in done.stderr + done.stdout
    assert (clone / "alpaca_lora" / "adapter_model.safetensors").exists()
