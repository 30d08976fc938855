"""Sets of versions. Only `versions.toml`, beside this module, names them.

`newest` is the newest Unsloth with the newest libraries that it allows, `pinned` what most of its public notebooks ask
for. Tests and rehearsals train in them; the bounds of `allowed` are those of Unsloth's own metadata.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from nb2ddp import toml

FILE = Path(__file__).with_suffix(".toml")
#: The sets that can be asked for by name.
SETS = ("pinned", "newest")
#: How the libraries are called where people read of them.
_TITLES = {"trl": "TRL", "unsloth": "Unsloth", "peft": "PEFT"}
#: The libraries whose versions decide how a script trains, in the order in which they are told.
TOLD = ("unsloth", "transformers", "trl", "datasets", "torch")


def tables() -> Mapping[str, Mapping[str, str]]:
    """Every table of the file: package, as Python calls it, -> version, or in `allowed` its bounds."""
    return toml.tables(__file__)


def pins(name: str) -> list[str]:
    """The requirements of a set, those of a CPU's training included: `transformers==5.17.0`.

    Args:
        name: one of `SETS`.
    """
    return [f"{package}=={version}" for package, version in {**tables()[name], **tables()["cpu"]}.items()]


def told(versions: Mapping[str, str]) -> str:
    """The versions that decide how a script trains, as a person reads them: `Unsloth 2026.10.9, TRL 1.15.0`.

    Args:
        versions: package -> version; packages that are not there are left out.
    """
    here = ((name, versions[name].partition("+")[0]) for name in TOLD if versions.get(name))
    return ", ".join(f"{_TITLES.get(name, name)} {version}" for name, version in here)
