"""Build the tiny hub that the end-to-end tests train on: `python -m tests.e2e.hub FOLDER`.

`transformers` and `datasets` read a repository id such as "unsloth/Qwen3-0.6B" from the folder of that name
below the working directory, if there is one. The hub is a folder of such folders: the stand-ins of a rehearsal, for the
ids that the fixtures load. A script needs no change to run.

The same folder comes out of every build: each model is drawn from the same seed, each data set from its own.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from nb2ddp.rehearsal.stage.models import build_model
from tests.e2e.rows import build_dataset

MODELS = (
    "unsloth/Llama-3.2-1B",
    "unsloth/Llama-3.2-1B-Instruct",
    "unsloth/mistral-7b-v0.3",
    "unsloth/Qwen2.5-0.5B-Instruct",
    "unsloth/Qwen3-0.6B",
    "unsloth/gemma-3-270m-it",
    "sentence-transformers/all-MiniLM-L6-v2",
)
# Where Unsloth looks for its own 4-bit copies of a model.
COPIES = ("{}-bnb-4bit", "{}-unsloth-bnb-4bit")
#: The columns that the fixtures use, where the id alone does not say them.
DATASETS: dict[str, list[str]] = {
    "yahma/alpaca-cleaned": [],
    "mlabonne/FineTome-100k": [],
    "roneneldan/TinyStories": [],
    "databricks/databricks-dolly-15k": ["instruction", "context", "response", "category"],
    "openai/gsm8k": [],
    "Abirate/english_quotes": ["quote", "author"],
    "stanfordnlp/imdb": [],
}
CONFIGURATIONS = {"openai/gsm8k": "main"}
ROWS = 240


def build(root: Path) -> Path:
    """Build the whole hub in the folder `root`, which is made if it is missing, and return it."""
    for name in MODELS:
        folder = root / name
        folder.mkdir(parents=True)
        build_model(name, folder)
        for copy in COPIES:
            for spelling in {folder.name, folder.name.lower()}:
                link = folder.parent / copy.format(spelling)
                if not link.exists():
                    link.symlink_to(folder.name)
    for name, used in DATASETS.items():
        folder = root / name
        folder.mkdir(parents=True)
        configs = [CONFIGURATIONS.get(name, "default")]
        build_dataset(name, folder, used=used, splits=["train"], configs=configs, rows=ROWS)
    return root


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.e2e.hub", description="Build the tiny hub.")
    parser.add_argument("folder", type=Path)
    print(build(parser.parse_args().folder))


if __name__ == "__main__":
    main()
