"""Sets of versions. Only `versions.toml`, next to this module, names them.

`newest` is the newest Unsloth with the newest libraries that it allows. `pinned` is the set that most of its public
notebooks ask for. Tests and rehearsals train in them; the bounds of `allowed` are those of Unsloth's own metadata.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from nb2ddp import toml

FILE = Path(__file__).with_suffix(".toml")
#: The names of the sets.
SETS = ("pinned", "newest")
#: The names of libraries in text for people.
_TITLES = {"trl": "TRL", "unsloth": "Unsloth", "peft": "PEFT"}
#: The libraries whose versions decide how a script trains, in the order in which they are reported.
REPORTED = ("unsloth", "transformers", "trl", "datasets", "torch")


def tables() -> Mapping[str, Mapping[str, str]]:
    """Return every table of the file: package, by its name in Python, -> version, or in `allowed` its bounds."""
    return toml.tables(__file__)


def pins(name: str) -> list[str]:
    """Return the requirements of a set, including those for training on a CPU: `transformers==5.17.0`.

    Args:
        name: one of `SETS`.
    """
    return [f"{package}=={version}" for package, version in {**tables()[name], **tables()["cpu"]}.items()]


def version_text(versions: Mapping[str, str]) -> str:
    """Return the versions that decide how a script trains, as text for people: `Unsloth 2026.10.9, TRL 1.15.0`.

    Args:
        versions: package -> version; missing packages are left out.
    """
    here = ((name, versions[name].partition("+")[0]) for name in REPORTED if versions.get(name))
    return ", ".join(f"{_TITLES.get(name, name)} {version}" for name, version in here)
