"""GPUs that are rented or owned, with their memory."""

from __future__ import annotations

import re
from dataclasses import dataclass

#: Bytes that torch reports as `total_memory`; those with a comment were read on such a GPU.
GPUS: dict[str, float] = {
    "T4 16 GB": 15.8e9,  # 15,835,660,288
    "P100 16 GB": 17.1e9,
    "V100 16 GB": 16.9e9,
    "RTX 3060 12 GB": 12.6e9,
    "RTX 4080 16 GB": 16.9e9,
    "L4 24 GB": 23.7e9,
    "A10G 24 GB": 23.8e9,
    "RTX 3090 24 GB": 25.3e9,
    "RTX 4090 24 GB": 25.3e9,
    "RTX 5090 32 GB": 33.7e9,
    "A100 40 GB": 42.3e9,
    "A40 48 GB": 47.7e9,
    "A6000 48 GB": 50.9e9,
    "L40S 48 GB": 47.7e9,
    "A100 80 GB": 85.1e9,
    "H100 80 GB": 85.0e9,  # 85,017,493,504
    "RTX PRO 6000 96 GB": 101.9e9,
    "H200 141 GB": 150.1e9,  # 150,109,880,320
    "B200 180 GB": 191.5e9,
    "MI300X 192 GB": 205.8e9,
}
#: Those of the table that is shown where none is asked for.
SHOWN = ("T4 16 GB", "RTX 4090 24 GB", "A100 40 GB", "H100 80 GB")
_MEMORY = re.compile(r"(\d+)\s*GB", re.IGNORECASE)


class GpuError(Exception):
    """A GPU that is not known; the message is one sentence."""


@dataclass(frozen=True)
class Gpu:
    """A kind of GPU and its memory in bytes."""

    name: str
    memory: float


def gpu_of(wanted: str) -> Gpu:
    """The GPU that a person names: `H100`, `H100 80GB`, or only its memory: `48GB`.

    Raises:
        GpuError: no GPU of the table is called so, or several of different memory are.
    """
    plain = re.sub(r"[\s_-]", "", wanted).lower()
    found = [name for name in GPUS if re.sub(r"\s", "", name).lower().startswith(plain)] if plain else []
    if len({GPUS[name] for name in found}) == 1 or any(_same(name, plain) for name in found):
        name = next((name for name in found if _same(name, plain)), found[0])
        return Gpu(name, GPUS[name])
    size = _MEMORY.fullmatch(wanted.strip())
    if size and 0 < int(size[1]) < 10_000:
        return Gpu(f"{size[1]} GB", float(size[1]) * 1e9)
    if found:
        raise GpuError(f"--gpu {wanted}: {' or '.join(found)}?")
    raise GpuError(f"--gpu {wanted}: no GPU of that name is known; name its memory, such as 48GB, or {', '.join(GPUS)}")


def _same(name: str, plain: str) -> bool:
    return re.sub(r"\s", "", name).lower() == plain
