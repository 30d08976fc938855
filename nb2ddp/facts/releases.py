"""Names and arguments of TRL and transformers that some of their releases do not have.

`fields.json` says which release has what (`python -m tests.fields` makes it), `releases.toml` what to write instead.
Unsloth takes older names of TRL's arguments itself, and leaves out those that are gone, with a warning
(rl_config_compat.py and trainer.py of 2026.10.9): with it, of TRL only what is imported counts here, and arguments that
came later.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
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
    """What each release has, by library; see the top of `tests/fields.py`."""
    read: Mapping[str, Any] = json.loads(_FILE.read_text(encoding="utf-8"))
    return read


@dataclass(frozen=True)
class Change:
    """A row of `releases.toml`, where the columns are explained."""

    library: str
    name: str
    owner: str = ""
    value: str = ""
    position: int = 0
    instead: str = ""
    advice: str = ""


def rows(kind: str) -> Sequence[Mapping[str, Any]]:
    """The rows of `releases.toml` of a kind: "change" or "floor"."""
    found: Sequence[Mapping[str, Any]] = toml.tables(__file__)[kind]
    return found


@cache
def changes(library: str) -> dict[str, Change]:
    """The rows of a library, by the name that each is for."""
    return {row["name"]: Change(**row) for row in rows("change") if row["library"] == library}


def successor(name: str) -> str:
    """The argument that has taken the place of another, in every version that Unsloth takes; "" where none has."""
    row = changes("transformers").get(name)
    return row.instead if row is not None else ""


@dataclass(frozen=True)
class Use:
    """A name that a notebook takes from a library, and when it was there.

    Attributes:
        node: where it stands.
        library: "trl" or "transformers".
        name: of an argument, or of what is imported.
        spans: the first and the last release of each time in which it was there; "" for one that lasts.
    """

    node: cst.CSTNode
    library: str
    name: str
    spans: tuple[tuple[str, str], ...]

    def last_before(self, release: str) -> str:
        """The last release that had it before one that does not; "" where it came later."""
        return next((last for first, last in reversed(self.spans) if Version(first) < Version(release)), "")

    @property
    def successor(self) -> str:
        """The argument that has taken its place; see `successor`."""
        return successor(self.name)

    @property
    def home(self) -> str:
        """The module of `trl.experimental` that the newest TRL has it in, or ""."""
        return str(table()["trl"]["experimental"].get(self.name, ""))

    def is_in(self, release: str) -> bool:
        """Whether a release has it."""
        at = _version(release)
        return any(_version(first) <= at and (not last or at <= _version(last)) for first, last in self.spans)


def uses_unsloth(tree: Tree) -> bool:
    """True where live code imports Unsloth, whatever for."""
    return any(tree.is_live(statement) for statement, *_ in tree.imports("unsloth"))


def uses(tree: Tree) -> Iterator[Use]:
    """What a notebook takes from TRL and transformers."""
    for statement, module, _ in tree.imports("trl"):  # of TRL itself, of its models and its trainers
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


#: What a release lacks, the releases that a job may have, and the versions that are asked for.
Lacked = tuple[Use, tuple[str, ...], str]


def lacked(tree: Tree, text: str) -> Iterator[Lacked]:
    """What the newest release that a job may have lacks, with these releases and the versions that are asked for.

    Args:
        tree: the notebook.
        text: of its cells.
    """
    of_library = {library: available(tree, text, library) for library in ("transformers", "trl")}
    for use in uses(tree):
        releases = of_library[use.library]
        if releases and not use.is_in(releases[-1]):
            yield use, releases, asked_for(text, use.library)


def needed(tree: Tree, library: str, releases: tuple[str, ...]) -> list[Use]:
    """What a notebook needs of a library, that with the oldest last release first."""
    found = [use for use in uses(tree) if use.library == library and not use.successor]
    return sorted(found, key=lambda use: max((n for n, each in enumerate(releases) if use.is_in(each)), default=-1))


def fitting(tree: Tree, library: str, releases: tuple[str, ...]) -> tuple[str, ...]:
    """The releases, of those that a job may have, that have all that a notebook needs; all if none has."""
    found = needed(tree, library, releases)
    return tuple(release for release in releases if all(use.is_in(release) for use in found)) or releases


def _given(argument: cst.Arg, made: re.Match[str], is_lenient: bool) -> Iterator[Use]:
    """What an argument of a config or a trainer needs, of which those of TRL inherit transformers' arguments.

    Of an argument of TRL's that Unsloth hands on or leaves out (`is_lenient`), it counts since when it is there.
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
    """The releases that a job may have, the oldest first.

    Where Unsloth takes none as old as asked for, the last is the one that most notebooks pin.

    Args:
        library: "trl" or "transformers".
        asked: the versions that the notebook asks for; "" for any.
        with_unsloth: True leaves out those that Unsloth does not take.
    """
    releases = _accepted(library) if with_unsloth else table()[library]["releases"]
    bounds = SpecifierSet(f"<={tables()['pinned'][library]}" if with_unsloth and is_too_old(library, asked) else asked)
    return tuple(release for release in releases if _has_minor(bounds, release))


def is_too_old(library: str, asked: str) -> bool:
    """Whether Unsloth takes no release of a library as old as a notebook asks for."""
    bounds, oldest = SpecifierSet(asked), Version(_accepted(library)[0])
    named = [Version(part.version.removesuffix(".*")) for part in bounds]
    is_none = not any(_has_minor(bounds, release) for release in _accepted(library))
    return is_none and bool(named) and max(named) <= oldest


@cache
def _accepted(library: str) -> tuple[str, ...]:
    """The releases of a library that Unsloth takes, the oldest first."""
    allowed = SpecifierSet(tables()["allowed"][library])
    return tuple(release for release in table()[library]["releases"] if _has_minor(allowed, release))


def asked_for(text: str, library: str) -> str:
    """The versions of a library that a notebook's text names last; "" for any.

    Args:
        text: of its cells, with the versions that it binds to names: of `pip install trl=={version}`.
        library: "trl" or "transformers".
    """
    text = re.sub(rf"\b{library}(\.git)?@v(\d[\d.]*\d)", rf"{library}==\2", text)  # a tag of its repository
    named = re.findall(rf"(?<![\w-]){library}((?:[=<>!~]=|[<>])[\w.*]+(?:,(?:[=<>!~]=|[<>])[\w.*]+)*)", text)
    try:
        return str(SpecifierSet(named[-1])) if named else ""
    except InvalidSpecifier:
        return ""


def trl_beside(trl: str, transformers: str, with_unsloth: bool) -> str:
    """The versions of TRL that need no later transformers; those that are asked for where that leaves none.

    Args:
        trl: the versions of TRL that the notebook asks for; "" for any.
        transformers: those of transformers.
        with_unsloth: True leaves out those that Unsloth does not take.
    """
    last = next(reversed(taken("transformers", transformers, with_unsloth)), "")
    first = next(
        (first for first, needed in toml.tables(__file__)["needs"].items() if last and Version(last) < Version(needed)),
        "",
    )
    bounds = f"{trl},<{first}".strip(",")
    return bounds if first and taken("trl", bounds, with_unsloth) else trl


def available(tree: Tree, text: str, library: str) -> tuple[str, ...]:
    """The releases of a library that a job may have, the oldest first."""
    asked, with_unsloth = asked_for(text, library), uses_unsloth(tree)
    if library == "trl":
        asked = trl_beside(asked, asked_for(text, "transformers"), with_unsloth)
    return taken(library, asked, with_unsloth)


def _has_minor(bounds: SpecifierSet, release: str) -> bool:
    """Whether bounds take a release, or another one of its minor version: the table has one of each."""
    minor = Version(release).release[:2]
    named = [part for part in bounds if part.operator in ("==", "<=") and not part.version.endswith(".*")]
    return bounds.contains(release, True) or any(
        Version(part.version).release[:2] == minor and bounds.contains(part.version, True) for part in named
    )
