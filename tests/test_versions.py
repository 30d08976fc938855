"""The sets of versions are within Unsloth's bounds, and the same wherever they are named."""

from __future__ import annotations

import sys
from importlib.metadata import requires, version
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

from nb2ddp.versions import SETS, pins, tables, version_text
from tests.newest import UNSLOTH, bounds, in_order, written

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).parent.parent


@pytest.mark.parametrize("name", SETS)
def test_sets_are_within_the_bounds_of_unsloth(name: str) -> None:
    for pin in map(Requirement, pins(name)):
        bound = SpecifierSet(tables()["allowed"].get(pin.name, ""))
        assert str(pin.specifier).removeprefix("==") in bound, f"{pin} is not in {bound}"


def test_bounds_are_those_of_the_metadata_of_unsloth() -> None:
    """`python -m tests` installs the newest set."""
    assert {name: version(name) for name in UNSLOTH} == {name: tables()["newest"][name] for name in UNSLOTH}
    asked = [line for name in UNSLOTH for line in requires(name) or []]
    assert bounds(asked, tables()["allowed"]) == tables()["allowed"]


def test_the_extra_for_rehearsals_has_these_bounds() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extra = [Requirement(line) for line in project["optional-dependencies"]["rehearse"]]
    found = {each.name: each.specifier for each in extra if each.name in tables()["allowed"]}
    assert found == {name: SpecifierSet(tables()["allowed"][name]) for name in found}
    assert found.keys() >= {"torch", "transformers", "trl", "datasets", "accelerate", "peft", "huggingface_hub"}


@pytest.mark.parametrize("page", ["README.md", "docs/setup-block.md"])
def test_pages_name_the_versions(page: str) -> None:
    text = " ".join((ROOT / page).read_text(encoding="utf-8").split())
    for name in SETS:
        for each in version_text(tables()[name]).split(", "):
            assert each in text


def test_bounds_of_all_that_ask_are_joined() -> None:
    asked = ["trl<=1.15.0,>=0.18.2", "trl>=0.20", "huggingface-hub>=0.34", "peft>=1; extra == 'x'", "rich"]
    assert bounds(asked, ("trl", "huggingface_hub", "peft")) == {
        "huggingface_hub": ">=0.34",
        "trl": ">=0.18.2,>=0.20,<=1.15.0",
    }
    assert in_order(SpecifierSet("<2,!=1.5,>=1")) == ">=1,!=1.5,<2"


def test_one_table_of_the_file_is_renewed() -> None:
    text = '[newest]\ntrl = "1"\n\n[pinned]\ntrl = "1"\n'
    assert written("newest", {"trl": "2"}, text) == '[newest]\ntrl = "2"\n\n[pinned]\ntrl = "1"\n'
