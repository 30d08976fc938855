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


#: In order of memory; a name without memory means the first row of that name.
KINDS = tuple(Kind(**row) for row in toml.tables(__file__)["kinds"])
#: GPUs that notebooks are made for, with their memory in GB; the smaller one of two with the same name.
_GPUS = {kind.name: kind.rounded for kind in reversed(KINDS)}
#: Rounded memory, by a GPU's name and the memory that it is sold with.
_ROUNDED = {(kind.name, kind.sold): kind.rounded for kind in KINDS}
#: AMD's cloud for developers has one kind of GPU.
_CLOUDS = {"AMD Dev Cloud": "MI300X"}
_GPU = re.compile(rf"(?P<gpu>{'|'.join([*_GPUS, *_CLOUDS])})(?!\d)")
#: A GPU in a name or a sentence, with its memory if stated: `A100(80GB)`.
_NAMED_GPU = re.compile(rf"(?<![A-Za-z0-9]){_GPU.pattern}(?=x\d|[^A-Za-z]|$)(?:[\W_]{{0,3}}(?P<gigabytes>\d+) ?GB)?")
#: Text on the machine that a notebook is made for: a heading, "To run this, press Run all on your A100 instance", a
#: label ("Runtime: T4", "Settings → Accelerator → GPU T4"), or a note on its settings ("Tuned for a T4").
_MADE_FOR = re.compile(
    r"^#{1,6} .*|\b(?:to run this|this notebook (?:is|was|needs|requires|runs))\b.*"
    r"|^(?:[^\w\n]|\d+\. )*(?:\w+ )?(?:target|gpu|hardware|platform|runtime|requirements)(?: \w+){0,2}"
    r"[^\w\n]*(?:[:→]|->).*"
    r"|\b(?:runtime type|accelerator)[^\w\n]*(?:[:→]|->).*"
    r"|^[^\w\n]*runs? (?:\S+ )?on\b.*|\b(?:tuned|sized|configured) for\b.*|^.*\btuned config.*",
    re.I | re.MULTILINE,
)
_FREE_COLAB = re.compile(r"\bfree\W+(?:\w+\W+){0,3}Colab\b", re.I)
#: Output of Unsloth, of code in notebooks and of nvidia-smi about a GPU: its name, and its memory in GiB or MiB.
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

    name: str  #: empty if only its memory is known
    gigabytes: int

    def __str__(self) -> str:
        """Return the GPU in the form used in comments: `40 GB (A100)`."""
        return f"{self.gigabytes} GB ({self.name})" if self.name else f"{self.gigabytes} GB"


def gpu(notebook: Notebook, weights: float, last: int) -> Gpu | None:
    """Return the GPU that a notebook was run on or made for; None if unknown.

    This is the last GPU in the saved outputs up to the last training, else the first one after it. If the outputs show
    none, it is the largest GPU that the notebook's name, headings and sentences mention (a sentence with several GPUs
    counts with the smallest one), else the one in Colab's or Kaggle's metadata, which may be out of date. A GPU that
    cannot hold the weights of the model is ignored.

    Args:
        notebook: the notebook.
        weights: the least memory that its model's weights take, in GB; 0 if unknown.
        last: the number of the last cell that trains.
    """
    memory = attrgetter("gigabytes")
    until = [_shown(text) for cell, text in notebook.shown if cell <= last]
    behind = [_shown(text) for cell, text in notebook.shown if cell > last]
    for source in (*reversed(until), *behind, _from_text(notebook), map(_named, _GPU.finditer(notebook.gpu))):
        if large := [each for each in source if each.gigabytes > weights]:
            return max(large, key=memory)
    return None


def ran_out_of_memory(notebook: Notebook, last: int) -> bool:
    """Return whether saved outputs show that a cell up to `last`, the last that trains, ran out of memory; 0: any cell.

    The batch then does not fit the GPU. Errors after the training (in merges, exports, generation) do not show this.
    """
    return any("out of memory" in cell.failed for cell in notebook.cells if cell.number <= last or not last)


def _shown(text: str) -> Iterator[Gpu]:
    for pattern in _SHOWN:
        for match in pattern.finditer(text):
            size = float(match["gib"]) if "gib" in match.groupdict() else int(match["mib"]) / 1024
            yield _device(match["name"], size)


def _device(name: str, gib: float) -> Gpu:
    """Return the GPU that programs print with a name and memory in GiB. The memory of a known GPU is rounded as in the
    table, below torch's count in GB of 10**9 bytes, so that the same GPU takes the same batch."""
    known = _GPU.search(name)
    if known is not None and abs(_GPUS[known["gpu"]] - gib) < gib / 10:
        return Gpu(known["gpu"], _GPUS[known["gpu"]])
    kind = known["gpu"] if known is not None else re.sub(r"^(NVIDIA|AMD) |GeForce ", "", name)
    in_name = re.search(r"(\d+) ?GB\b", name)
    return Gpu(kind, int(in_name[1]) if in_name is not None else round(gib))


def _from_text(notebook: Notebook) -> Iterator[Gpu]:
    texts = [notebook.name]
    for cell in notebook.cells:
        texts += _MADE_FOR.findall(cell.source) if cell.kind == "markdown" else []
    for text in texts:
        named = [_named(match) for match in _NAMED_GPU.finditer(text)]
        if not named and _FREE_COLAB.search(text):
            named = [Gpu("T4", _GPUS["T4"])]
        if named:
            yield min(named, key=attrgetter("gigabytes"))


def _named(match: re.Match[str]) -> Gpu:
    name = _CLOUDS.get(match["gpu"], match["gpu"])
    memory_gb = int(match.groupdict().get("gigabytes") or _GPUS[name])
    return Gpu(name, _ROUNDED.get((name, memory_gb), memory_gb))
