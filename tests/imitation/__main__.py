"""Print what differs between the processes of scripts and notebooks: `python -m tests.imitation FILE...`."""

from __future__ import annotations

import sys
from pathlib import Path

from nb2ddp.convert import convert_source
from tests.imitation.check import Difference, differences
from tests.imitation.notebook import cells


def check(path: Path) -> list[Difference]:
    text = path.read_text(encoding="utf-8")
    if "\n# %% Distributed setup\n" in text:
        return differences(text)
    return differences(convert_source(text, path.stem, "train.py").files["train.py"], cells(text))


def main() -> None:
    for name in sys.argv[1:]:
        try:
            for found in check(Path(name)):
                print(f"{name}: {found}", flush=True)
        except Exception as error:
            print(f"{name}: not converted: {error}", flush=True)


if __name__ == "__main__":
    main()
