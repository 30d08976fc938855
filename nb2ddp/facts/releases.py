"""Names and arguments of TRL and transformers that some of their releases do not have.

`fields.json` lists what each release has (`python -m tests.fields` makes it), `releases.toml` what to write instead.
Unsloth accepts older names of TRL's arguments, and drops removed arguments with a warning (rl_config_compat.py and
trainer.py of 2026.10.9). With Unsloth, only imported names of TRL and arguments that were added later count here.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

import libcst as cst
from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.version import Version

from nb2ddp import toml
from nb2ddp.syntax.tree import Tree
from nb2ddp.versions import tables

_FILE = Path(__file__).parent.parent / "fields.json"
_MADE = re.compile(
    r"(?:(?P<trl>trl|unsloth)|transformers|sentence_transformers)(?:\.\w+)*"
    r"\.(?P<name>\w+Config|\w*TrainingArguments|\w*(?P<trainer>Trainer))"
)


_version = cache(Version)


@cache
def table() -> Mapping[str, Any]:
    """Return what each release has, by library; see the top of `tests/fields.py`."""
    read: Mapping[str, Any] = json.loads(_FILE.read_text(encoding="utf-8"))
    return read


@dataclass(frozen=True)
class Change:
    """A row of `releases.toml`, which explains its columns."""

    library: str
    name: str
    owner: str = ""
    value: str = ""
    position: int = 0
    instead: str = ""
    advice: str = ""


def rows(kind: str) -> Sequence[Mapping[str, Any]]:
    """Return the rows of `releases.toml` of a kind: "change" or "floor"."""
    found: Sequence[Mapping[str, Any]] = toml.tables(__file__)[kind]
    return found


@cache
def changes(library: str) -> dict[str, Change]:
    """Return the rows of a library, by the name that each row describes."""
    return {row["name"]: Change(**row) for row in rows("change") if row["library"] == library}


def successor(name: str) -> str:
    """Return the argument that replaces another in every version that Unsloth allows; "" if there is none."""
    row = changes("transformers").get(name)
    return row.instead if row is not None else ""


@dataclass(frozen=True)
class Use:
    """A name that a notebook uses from a library, and the releases that have it.

    Attributes:
        node: the node that uses it.
        library: "trl" or "transformers".
        name: the argument or the imported name.
        spans: the first and last release of each period in which the library has it; "" if a period has no end.
    """

    node: cst.CSTNode
    library: str
    name: str
    spans: tuple[tuple[str, str], ...]

    def last_before(self, release: str) -> str:
        """Return the last release with the name before a release without it; "" if it was added later."""
        return next((last for first, last in reversed(self.spans) if Version(first) < Version(release)), "")

    @property
    def successor(self) -> str:
        """The argument that replaces it; see the function `successor`."""
        return successor(self.name)

    @property
    def home(self) -> str:
        """The module of `trl.experimental` that contains it in the newest TRL, or ""."""
        return str(table()["trl"]["experimental"].get(self.name, ""))

    def is_in(self, release: str) -> bool:
        """Return whether a release has it."""
        at = _version(release)
        return any(_version(first) <= at and (not last or at <= _version(last)) for first, last in self.spans)


def uses_unsloth(tree: Tree) -> bool:
    """Return whether live code imports Unsloth, for any purpose."""
    return any(tree.is_live(statement) for statement, *_ in tree.imports("unsloth"))


def uses(tree: Tree) -> Iterator[Use]:
    """Yield the names that a notebook uses from TRL and transformers."""
    for statement, module, _ in tree.imports("trl"):  # from TRL, its models and its trainers
        is_theirs = re.fullmatch(r"trl(\.(models|trainer)(\.\w+)*)?", module) is not None
        is_certain = tree.is_live(statement) and tree.around(statement, cst.Try) is None
        if is_theirs and is_certain and not isinstance(statement.names, cst.ImportStar):
            named = ((alias, alias.evaluated_name) for alias in statement.names)
            yield from (Use(alias, "trl", name, spans) for alias, name in named if (spans := _spans("trl", "", name)))
    is_lenient = uses_unsloth(tree)
    for call in tree.live(cst.Call):
        if made := _MADE.fullmatch(tree.family(call.func)):
            for argument in call.args:
                yield from _given(argument, made, is_lenient)


#: A name that a release lacks, the releases that a job may have, and the requested versions.
Lacked = tuple[Use, tuple[str, ...], str]


def lacked(tree: Tree, text: str) -> Iterator[Lacked]:
    """Yield the names that the newest of the releases that a job may have lacks, with these and the requested versions.

    Args:
        tree: the notebook's code.
        text: the text of its cells.
    """
    of_library = {library: available(tree, text, library) for library in ("transformers", "trl")}
    for use in uses(tree):
        releases = of_library[use.library]
        if releases and not use.is_in(releases[-1]):
            yield use, releases, asked_for(text, use.library)


def needed(tree: Tree, library: str, releases: tuple[str, ...]) -> list[Use]:
    """Return what a notebook needs of a library, in the order of the last release that has it."""
    found = [use for use in uses(tree) if use.library == library and not use.successor]
    return sorted(found, key=lambda use: next((n for n in range(len(releases))[::-1] if use.is_in(releases[n])), -1))


def fitting(tree: Tree, library: str, releases: tuple[str, ...]) -> tuple[str, ...]:
    """Return those of the given releases that have all that a notebook needs; all of them if none does."""
    found = needed(tree, library, releases)
    return tuple(release for release in releases if all(use.is_in(release) for use in found)) or releases


def _given(argument: cst.Arg, made: re.Match[str], is_lenient: bool) -> Iterator[Use]:
    """Yield the name that an argument of a config or trainer uses; those of TRL inherit transformers' arguments.

    For an argument of TRL that Unsloth passes on or drops (`is_lenient`), only the first release with it matters.
    """
    name = argument.keyword.value if argument.keyword else ""
    parent = "Trainer" if made["trainer"] else "TrainingArguments"
    inherited = () if made["trl"] and made["trainer"] else _spans("transformers", parent, name)
    if spans := inherited or (_spans("trl", made["name"], name) if made["trl"] else ()):
        is_dropped = is_lenient and made["trl"] and not (inherited and successor(name))
        library = "transformers" if inherited else "trl"
        yield Use(argument, library, name, ((spans[0][0], ""),) if is_dropped else spans)


def _spans(library: str, owner: str, name: str) -> tuple[tuple[str, str], ...]:
    return tuple((first, last) for first, last in table()[library].get(owner, {}).get(name, []))


@cache
def taken(library: str, asked: str, with_unsloth: bool) -> tuple[str, ...]:
    """Return the releases that a job may have, the oldest first.

    If Unsloth allows no release as old as requested, the last one is that which most notebooks pin.

    Args:
        library: "trl" or "transformers".
        asked: the versions that the notebook requests; "" for any.
        with_unsloth: whether to leave out releases that Unsloth does not allow.
    """
    releases = _accepted(library) if with_unsloth else table()[library]["releases"]
    bounds = SpecifierSet(f"<={tables()['pinned'][library]}" if with_unsloth and is_too_old(library, asked) else asked)
    return tuple(release for release in releases if _has_minor(bounds, release))


def is_too_old(library: str, asked: str) -> bool:
    """Return whether Unsloth allows no release of a library as old as a notebook requests."""
    bounds, oldest = SpecifierSet(asked), Version(_accepted(library)[0])
    named = [Version(part.version.removesuffix(".*")) for part in bounds]
    is_none = not any(_has_minor(bounds, release) for release in _accepted(library))
    return is_none and bool(named) and max(named) <= oldest


@cache
def _accepted(library: str) -> tuple[str, ...]:
    """Return the releases of a library that Unsloth allows, the oldest first."""
    allowed = SpecifierSet(tables()["allowed"][library])
    return tuple(release for release in table()[library]["releases"] if _has_minor(allowed, release))


@lru_cache(4)  # several rules ask for both libraries of one notebook
def asked_for(text: str, library: str) -> str:
    """Return the versions of a library that a notebook's text names last; "" for any.

    Args:
        text: the text of its cells, with the versions in `pip install trl=={version}` filled in.
        library: "trl" or "transformers".
    """
    # `trl.git@v0.22.2` is a tag of its repository; the patterns begin with plain letters, which is fast
    text = re.sub(rf"{library}(?<!\w{library})(\.git)?@v(\d[\d.]*\d)", rf"{library}==\2", text)
    named = re.findall(rf"{library}(?<![\w-]{library})((?:[=<>!~]=|[<>])[\w.*]+(?:,(?:[=<>!~]=|[<>])[\w.*]+)*)", text)
    try:
        return str(SpecifierSet(named[-1])) if named else ""
    except InvalidSpecifier:
        return ""


def trl_beside(trl: str, transformers: str, with_unsloth: bool) -> str:
    """Return the requested versions of TRL that need no later transformers; all requested ones if none is left.

    Args:
        trl: the versions of TRL that the notebook requests; "" for any.
        transformers: the versions of transformers that it requests; "" for any.
        with_unsloth: whether to leave out versions that Unsloth does not allow.
    """
    last = next(reversed(taken("transformers", transformers, with_unsloth)), "")
    first = next(
        (first for first, needed in toml.tables(__file__)["needs"].items() if last and Version(last) < Version(needed)),
        "",
    )
    bounds = f"{trl},<{first}".strip(",")
    return bounds if first and taken("trl", bounds, with_unsloth) else trl


def available(tree: Tree, text: str, library: str) -> tuple[str, ...]:
    """Return the releases of a library that a job may have, the oldest first."""
    asked, with_unsloth = asked_for(text, library), uses_unsloth(tree)
    if library == "trl":
        asked = trl_beside(asked, asked_for(text, "transformers"), with_unsloth)
    return taken(library, asked, with_unsloth)


def _has_minor(bounds: SpecifierSet, release: str) -> bool:
    """Return whether bounds allow a release, or another of its minor version: the table has one release of each."""
    minor = Version(release).release[:2]
    named = [part for part in bounds if part.operator in ("==", "<=") and not part.version.endswith(".*")]
    return bounds.contains(release, True) or any(
        Version(part.version).release[:2] == minor and bounds.contains(part.version, True) for part in named
    )
