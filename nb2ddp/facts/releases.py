"""Names and arguments of TRL and transformers that some of their releases do not have.

`fields.json` says which release has what (`python -m tests.fields` makes it). Unsloth's own configs and trainers take
older names of TRL's arguments themselves, and leave out those that are gone, with a warning (rl_config_compat.py and
trainer.py of 2026.10.9): so of TRL only what is imported counts here.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import libcst as cst
from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.version import Version

from nb2ddp.syntax.tree import Tree
from nb2ddp.versions import tables

_FILE = Path(__file__).parent.parent / "fields.json"
#: Names that have a plain successor, which every version has that Unsloth takes.
SUCCESSORS = {"evaluation_strategy": "eval_strategy", "tokenizer": "processing_class"}
_OF_TRANSFORMERS = re.compile(r"(transformers|sentence_transformers)(\.\w+)*\.(\w*TrainingArguments|(Seq2Seq)?Trainer)")
_CONFIG = re.compile(r"(trl|unsloth)(\.\w+)*\.(\w+Config|UnslothTrainingArguments)")


@cache
def _table() -> Mapping[str, Any]:
    table: Mapping[str, Any] = json.loads(_FILE.read_text(encoding="utf-8"))
    return table


@dataclass(frozen=True)
class Use:
    """A name that a notebook takes from a library, and that not every release has.

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

    @property
    def last(self) -> str:
        """The last release that has it."""
        return self.spans[-1][1]

    def is_in(self, release: str) -> bool:
        """Whether a release has it."""
        at = Version(release)
        return any(Version(first) <= at and (not last or at <= Version(last)) for first, last in self.spans)


def uses(tree: Tree) -> Iterator[Use]:
    """What a notebook that trains with Unsloth takes from TRL and transformers that has gone in some release."""
    if not any(tree.imports("unsloth")):
        return
    for node, library, owner, name in (*_imported(tree), *_given(tree)):
        spans = _table()[library].get(owner, {}).get(name, [])
        if spans and spans[-1][1]:
            yield Use(node, library, name, tuple((first, last) for first, last in spans))


def _imported(tree: Tree) -> Iterator[tuple[cst.CSTNode, str, str, str]]:
    for statement, module, _ in tree.imports("trl"):
        is_tried = any(isinstance(above, cst.Try) for above in tree.ancestors(statement))
        if isinstance(statement, cst.ImportFrom) and module == "trl" and tree.is_live(statement) and not is_tried:
            for alias in () if isinstance(statement.names, cst.ImportStar) else statement.names:
                yield alias, "trl", "", alias.evaluated_name


def _given(tree: Tree) -> Iterator[tuple[cst.CSTNode, str, str, str]]:
    for call in tree.live(cst.Call):
        family = tree.family(call.func)
        is_config = bool(_CONFIG.fullmatch(family))
        if not (is_config or _OF_TRANSFORMERS.fullmatch(family)):
            continue
        owner = "Trainer" if family.endswith("Trainer") else "TrainingArguments"
        for each in call.args:
            if each.keyword and (not is_config or each.keyword.value in SUCCESSORS):
                yield each, "transformers", owner, each.keyword.value


def taken(library: str, asked: str = "") -> list[str]:
    """The releases that Unsloth takes, the oldest first.

    Args:
        library: "trl" or "transformers".
        asked: the versions that the notebook asks for.
    """
    bounds = (SpecifierSet(tables()["allowed"][library]), SpecifierSet(asked))
    return [each for each in _table()[library]["releases"] if all(_has_minor(bound, each) for bound in bounds)]


def asked_for(tree: Tree, text: str, library: str) -> str:
    """The versions of a library that a notebook's text names last; "" for any.

    Args:
        tree: the notebook, which may bind a version to a name once: `pip install trl=={version}`.
        text: of its cells.
        library: "trl" or "transformers".
    """

    def fill(name: re.Match[str]) -> str:
        bound = tree.bindings(name[1])
        value = tree.literal(bound[0].value) if len(bound) == 1 and bound[0].value is not None else ...
        return value if isinstance(value, str) else name[0]

    text = re.sub(r"(?<=[=<>])\{(\w+)\}", fill, text)
    named = re.findall(rf"\b{library}((?:[=<>!~]=|[<>])[\w.*]+(?:,(?:[=<>!~]=|[<>])[\w.*]+)*)", text)
    try:
        return str(SpecifierSet(named[-1])) if named else ""
    except InvalidSpecifier:
        return ""


def _has_minor(bounds: SpecifierSet, release: str) -> bool:
    """Whether bounds take a release, or another one of its minor version: the table has one of each."""
    minor = Version(release).release[:2]
    named = [part for part in bounds if part.operator in ("==", "<=") and not part.version.endswith(".*")]
    return bounds.contains(release, True) or any(
        Version(part.version).release[:2] == minor and bounds.contains(part.version, True) for part in named
    )
