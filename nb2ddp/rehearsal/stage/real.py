"""Make a repository of the hub or of this machine's cache small, without its weights and its code.

A model keeps its shrunk configuration and its tokenizer, with random weights; a data set keeps its first rows.
"""

from __future__ import annotations

import json
import math
import os
import shutil
from pathlib import Path
from typing import Any

from . import seeing
from .models import describe_encoder
from .shrink import shrunk

ROWS = 64
_BYTES = 2**26  # of the rows of one split, which are repeated as often as there is room
#: The files of a model that hold no weights: what `AutoConfig`, `AutoTokenizer` and `AutoProcessor` read.
_FILES = (
    "config.json generation_config.json tokenizer* special_tokens_map.json added_tokens.json vocab.* merges.txt "
    "*.model chat_template* preprocessor_config.json processor_config.json video_preprocessor_config.json modules.json"
).split()


def build(kind: str, name: str, folder: Path, **hints: Any) -> str:
    """Make the stand-in for a repository from the real one.

    Args:
        kind: "models" or "datasets".
        name: its id.
        folder: where it is made.
        hints: of a data set `splits`, `configs` and `rows`; of a model `sees`: it will be given pictures.

    Returns:
        Where the real one was found: "hub" or "cache".

    Raises:
        Exception: the real one is not available, or cannot be made small.
    """
    if kind == "models":
        kept = _cached(name, "model")
        files = kept or _fetched(name, folder.with_name(f"{folder.name}-real"))
        _build_model(files, folder, sees=hints.get("sees", False))
    else:
        kept = _cached(name, "dataset")
        _build_dataset(str(kept or name), folder, **hints)
    return "cache" if kept else "hub"


def _cached(name: str, kind: str) -> Path | None:
    """Return the folder of a repository in the user's cache, or None."""
    import huggingface_hub
    from huggingface_hub.errors import LocalEntryNotFoundError

    try:
        folder = Path(
            huggingface_hub.snapshot_download(
                name, repo_type=kind, cache_dir=os.environ["REHEARSAL_CACHE"], local_files_only=True
            )
        )
    except LocalEntryNotFoundError:
        return None
    return folder if kind == "dataset" or (folder / "config.json").is_file() else None


def _fetched(name: str, folder: Path) -> Path:
    """Download the small files of a model from the hub, and return their folder."""
    import huggingface_hub

    huggingface_hub.snapshot_download(name, allow_patterns=_FILES, local_dir=folder)
    return folder


def _build_model(files: Path, folder: Path, *, sees: bool) -> None:
    import torch
    import transformers

    whole = transformers.AutoConfig.from_pretrained(files)
    for file in (each for pattern in _FILES for each in files.glob(pattern) if each.name != "config.json"):
        shutil.copyfile(file, folder / file.name)
    if sees and hasattr(whole, "vision_config"):
        seeing.save(type(whole).from_dict(shrunk(whole.to_dict())), folder)
        return
    real = whole.get_text_config()
    config = type(real).from_dict(shrunk(real.to_dict()))
    words = transformers.AutoTokenizer.from_pretrained(folder)
    if len(words) > config.vocab_size:
        raise ValueError("its tokenizer has more words than it")
    torch.manual_seed(0)
    model = _model(files, config)
    if not config.is_encoder_decoder:
        model(torch.arange(8)[None])  # a test that it works
    model.save_pretrained(folder)
    if (folder / "modules.json").exists():
        describe_encoder(folder)


def _model(files: Path, config: Any) -> Any:
    """Return a model with the heads of the real one; for a vision or audio model, only the text model."""
    import torch
    import transformers

    asked = json.loads((files / "config.json").read_text(encoding="utf-8")).get("architectures") or [""]
    own = getattr(transformers, asked[0], None)
    if own is not None and own.config_class is type(config):
        return own(config).to(torch.bfloat16)
    return transformers.AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)


def _build_dataset(source: str, folder: Path, *, splits: list[str], configs: list[str], rows: int, **_: Any) -> None:
    import datasets

    datasets.disable_progress_bars()
    configuration = None if configs == ["default"] else configs[0]
    real = datasets.get_dataset_split_names(source, configuration)
    found = [split for split in real if split in splits] or real[:3]
    for split in found:
        stream = datasets.load_dataset(source, configuration, split=split, streaming=True)
        first = datasets.Dataset.from_list(list(stream.decode(False).take(ROWS)), features=stream.features)
        times = max(1, min(math.ceil(rows / len(first)), _BYTES // first.data.nbytes))
        first.select([*range(len(first))] * times).to_parquet(folder / f"{split}.parquet")
    write_card(folder, configs, found)


def write_card(folder: Path, configs: list[str], splits: list[str]) -> None:
    """Write the card of a data set, which says what parquet files hold which split."""
    files = [{"split": split, "path": f"{split}.parquet"} for split in splits]
    card = {"configs": [{"config_name": configuration, "data_files": files} for configuration in configs]}
    (folder / "README.md").write_text(f"---\n{json.dumps(card)}\n---\n")  # YAML
