"""The GPU that a notebook's batch was chosen for."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from operator import attrgetter

from nb2ddp import toml
from nb2ddp.notebook.ipynb import Notebook


@dataclass(frozen=True)
class Kind:
    """A row of `gpu.toml`."""

    name: str
    sold: int
    memory: float
    rounded: int


#: From the smallest; of two with one name the first is meant where no memory is said.
KINDS = tuple(Kind(**row) for row in toml.tables(__file__)["kinds"])
#: GPUs that notebooks are made for, with their memory in GB; of two with one name the smaller.
_GPUS = {kind.name: kind.rounded for kind in reversed(KINDS)}
#: What is rounded of the memory that a GPU is sold with.
_ROUNDED = {(kind.name, kind.sold): kind.rounded for kind in KINDS}
#: AMD's cloud for developers has one kind of GPU.
_CLOUDS = {"AMD Dev Cloud": "MI300X"}
_GPU = re.compile(rf"(?P<gpu>{'|'.join([*_GPUS, *_CLOUDS])})(?!\d)")
#: One of them in a name or a sentence, and its memory where that is said: `A100(80GB)`.
_SAID_GPU = re.compile(rf"(?<![A-Za-z0-9]){_GPU.pattern}(?=x\d|[^A-Za-z]|$)(?:[\W_]{{0,3}}(?P<gigabytes>\d+) ?GB)?")
#: What says which machine a notebook is made for: a heading, "To run this, press Run all on your A100 instance", a
#: label ("Runtime: T4", "Settings → Accelerator → GPU T4"), or what ties its settings to a machine ("Tuned for a T4").
_MADE_FOR = re.compile(
    r"^#{1,6} .*|\b(?:to run this|this notebook (?:is|was|needs|requires|runs))\b.*"
    r"|^(?:[^\w\n]|\d+\. )*(?:\w+ )?(?:target|gpu|hardware|platform|runtime|requirements)(?: \w+){0,2}"
    r"[^\w\n]*(?:[:→]|->).*"
    r"|\b(?:runtime type|accelerator)[^\w\n]*(?:[:→]|->).*"
    r"|^[^\w\n]*runs? (?:\S+ )?on\b.*|\b(?:tuned|sized|configured) for\b.*|^.*\btuned config.*",
    re.I | re.MULTILINE,
)
_FREE_COLAB = re.compile(r"\bfree\W+(?:\w+\W+){0,3}Colab\b", re.I)
#: What Unsloth, the notebooks' own lines and nvidia-smi print of a GPU: its name, and its memory in GiB or MiB.
_DEVICE = r"(?P<name>[A-Z][\w /()-]*?)"
_SHOWN = (
    re.compile(rf"{_DEVICE}\. (?:Num GPUs = \d+\. )?Max memory(?: =|:) (?P<gib>\d+(?:\.\d+)?) GB"),
    re.compile(r"(?P<name>)\b[Mm]ax memory(?: =|:) (?P<gib>\d+(?:\.\d+)?) GB"),
    re.compile(rf"\bGPU\b[^\n(]*?(?P<name>[\w ]*{_GPU.pattern}[\w -]*) \((?P<gib>\d+(?:\.\d+)?) ?Gi?B"),
    re.compile(rf"\|\s+\d+\s+{_DEVICE}\s+(?:On|Off)\b.*\n.*/\s*(?P<mib>\d+)MiB"),
)


@dataclass(frozen=True)
class Gpu:
    """A kind of GPU, with its memory in GB (10**9 bytes)."""

    name: str  #: empty where only its memory is known
    gigabytes: int

    def __str__(self) -> str:
        """As a comment says it: `40 GB (A100)`."""
        return f"{self.gigabytes} GB ({self.name})" if self.name else f"{self.gigabytes} GB"


def gpu(notebook: Notebook, weights: float, last: int) -> Gpu | None:
    """The GPU that a notebook was run on or made for; None where nothing tells.

    That is the one that its saved outputs show last up to its last training, else behind it. Where they show none it is
    the largest that its name, its headings and its sentences say (the smallest of one sentence, which leaves a choice),
    and where these say none, Colab's or Kaggle's metadata, which outlive a change of machine. What cannot hold the
    weights of the model is not believed.

    Args:
        notebook: the notebook.
        weights: the least memory that its model's weights take, in GB; 0 where nothing tells.
        last: the number of the cell that trains last.
    """
    memory = attrgetter("gigabytes")
    until = [_shown(text) for cell, text in notebook.shown if cell <= last]
    behind = [_shown(text) for cell, text in notebook.shown if cell > last]
    for source in (*reversed(until), *behind, _said(notebook), map(_named, _GPU.finditer(notebook.gpu))):
        if large := [each for each in source if each.gigabytes > weights]:
            return max(large, key=memory)
    return None


def ran_out_of_memory(notebook: Notebook, last: int) -> bool:
    """True for a notebook whose saved outputs have such an error up to its last training, in cell `last`; 0 for none.

    Its batch does not fit the GPU then. Merges, exports and generations behind the training say nothing of it.
    """
    return any("out of memory" in cell.failed for cell in notebook.cells if cell.number <= last or not last)


def _shown(text: str) -> Iterator[Gpu]:
    for pattern in _SHOWN:
        for match in pattern.finditer(text):
            size = float(match["gib"]) if "gib" in match.groupdict() else int(match["mib"]) / 1024
            yield _device(match["name"], size)


def _device(name: str, gib: float) -> Gpu:
    """A GPU as programs print it. Its memory is rounded below what torch counts, 10**9 bytes a GB, so that the same GPU
    takes the same batch."""
    known = _GPU.search(name)
    if known is not None and abs(_GPUS[known["gpu"]] - gib) < gib / 10:
        return Gpu(known["gpu"], _GPUS[known["gpu"]])
    kind = known["gpu"] if known is not None else re.sub(r"^(NVIDIA|AMD) |GeForce ", "", name)
    in_name = re.search(r"(\d+) ?GB\b", name)
    return Gpu(kind, int(in_name[1]) if in_name is not None else round(gib))


def _said(notebook: Notebook) -> Iterator[Gpu]:
    texts = [notebook.name]
    for cell in notebook.cells:
        texts += _MADE_FOR.findall(cell.source) if cell.kind == "markdown" else []
    for text in texts:
        named = [_named(match) for match in _SAID_GPU.finditer(text)]
        if not named and _FREE_COLAB.search(text):
            named = [Gpu("T4", _GPUS["T4"])]
        if named:
            yield min(named, key=attrgetter("gigabytes"))


def _named(match: re.Match[str]) -> Gpu:
    name = _CLOUDS.get(match["gpu"], match["gpu"])
    said = int(match.groupdict().get("gigabytes") or _GPUS[name])
    return Gpu(name, _ROUNDED.get((name, said), said))
