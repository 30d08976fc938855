"""The GPU that a notebook's batch was chosen for."""

from __future__ import annotations

import re
from dataclasses import dataclass
from operator import attrgetter

from nb2ddp.notebook.ipynb import Notebook

#: GPUs that notebooks are made for: gigabytes that torch reports as `total_memory`, rounded down.
_GPUS = {"T4": 15, "P100": 16, "V100": 16, "L4": 23, "A100": 40, "H100": 80, "G4": 95, "H200": 140, "B200": 180}
_GPU = re.compile(rf"(?P<gpu>{'|'.join(_GPUS)})(?!\d)")
#: One of them in a name or a sentence, and its memory where that is said: `A100(80GB)`.
_SAID_GPU = re.compile(rf"(?<![A-Za-z0-9]){_GPU.pattern}(?=x\d|[^A-Za-z]|$)(?:[\W_]{{0,3}}(?P<gigabytes>\d+) ?GB)?")
#: What says which machine a notebook is made for: "To run this, press Run all on your A100 Google Colab Pro instance".
_MADE_FOR = re.compile(r"\b(?:to run this|this notebook (?:is|was|needs|requires|runs))\b.*", re.I)


@dataclass(frozen=True)
class Gpu:
    """A kind of GPU, with its memory in GB (10**9 bytes)."""

    name: str
    gigabytes: int
    named: bool = True  #: the notebook says so


def gpu(notebook: Notebook) -> Gpu:
    """The GPU that a notebook was made for: the largest of those that its metadata, its name and its text say.

    Where a sentence leaves a choice, it is the smallest of these. Where nothing says one it is a T4, as in 323 of 442
    published notebooks of Unsloth's.
    """
    texts = [notebook.name]
    for cell in notebook.cells:
        texts += _MADE_FOR.findall(cell.source) if cell.kind == "markdown" else []
    memory = attrgetter("gigabytes")
    said = [list(_GPU.finditer(notebook.gpu))[:1], *(list(_SAID_GPU.finditer(text)) for text in texts)]
    named = [min(map(_gpu, matches), key=memory) for matches in said if matches]
    return max(named, key=memory, default=Gpu("T4", _GPUS["T4"], named=False))


def _gpu(match: re.Match[str]) -> Gpu:
    name = match["gpu"]
    return Gpu(name, int(match.groupdict().get("gigabytes") or _GPUS[name]))
