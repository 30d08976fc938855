"""The GPUs that a person names."""

from __future__ import annotations

import re
from dataclasses import dataclass

from nb2ddp.facts.gpu import KINDS

#: The GPUs that the table shows if none is named.
SHOWN = ("T4 16 GB", "RTX 4090 24 GB", "A100 40 GB", "H100 80 GB")
_MEMORY = re.compile(r"(\d+)\s*GB", re.IGNORECASE)


class GpuError(Exception):
    """An unknown GPU; the message is one sentence."""


@dataclass(frozen=True)
class Gpu:
    """A kind of GPU and its memory in bytes."""

    name: str
    memory: float


#: Every known kind, with its nominal GB in the name.
GPUS = tuple(Gpu(f"{kind.name} {kind.sold} GB", kind.memory) for kind in KINDS)
#: The least memory, in bytes, of GPUs with the same nominal GB, from the smallest.
SIZES = {sold: min(kind.memory for kind in KINDS if kind.sold == sold) for sold in sorted({k.sold for k in KINDS})}


def gpu_of(wanted: str) -> Gpu:
    """Return the GPU of a name: `H100`, `H100 80GB`, or only its memory: `48GB`.

    Raises:
        GpuError: no GPU of the table has this name, or several with different memory have it.
    """
    plain = re.sub(r"[\s_-]", "", wanted).lower()
    gpus = [gpu for gpu in GPUS if _plain(gpu).startswith(plain)] if plain else []
    exact = [gpu for gpu in gpus if _plain(gpu) == plain]
    if exact or len({gpu.memory for gpu in gpus}) == 1:
        return (exact or gpus)[0]
    size = _MEMORY.fullmatch(wanted.strip())
    if size and 0 < int(size[1]) < 10_000:
        return Gpu(f"{size[1]} GB", float(size[1]) * 1e9)
    if gpus:
        raise GpuError(f"--gpu {wanted}: {' or '.join(gpu.name for gpu in gpus)}?")
    names = ", ".join(gpu.name for gpu in GPUS)
    raise GpuError(f"--gpu {wanted}: unknown GPU: give its memory, such as 48GB, or one of {names}")


def _plain(gpu: Gpu) -> str:
    return re.sub(r"\s", "", gpu.name).lower()
