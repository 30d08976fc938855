"""The contents of made rows: what the script's text says about columns, and what its preparation lacked."""

from __future__ import annotations

import ast
import json
import os
from typing import Any

from . import columns
from .shapes import AUDIO, EACH, IMAGE, INSIDE, Maker, Path, Shape, by_name, keyed, one_of, plain, turns_with_image

MOST_ROWS = 20_000  # of a made source
_HEAVY_ROWS = 64  # different ones, of a data set with pictures or sounds


class Schema:
    """The contents of made rows, and what else is made.

    Args:
        file: the JSON file that keeps it between processes.
        text: the script; the names of its columns and its comparisons determine their contents.
        rows: the minimum number of rows of a made data set.
        splits: its splits if the script does not say which it wants.
    """

    def __init__(self, file: str, text: str, rows: int, splits: list[str]) -> None:
        self.file, self.splits, tree = file, splits, ast.parse(text)
        self.compared = dict(columns.compared(tree))
        self.labels = columns.labels(tree)
        if "KTOTrainer" in text:  # TRL 0.22 tests whether a label is True, not whether it is 1
            self.compared["label"] = one_of([True, False])
        read = {name: shape for name, shape in columns.read_of_rows(tree).items() if "keys" in str(shape)}
        self.columns: dict[str, Shape] = {name: self.guess(name) for name in columns.columns(tree) or ["text"]}
        self.columns |= {name: shape for name, shape in read.items() if self.columns.get(name) == plain()}
        if {"messages", "images"} <= self.columns.keys():
            self.columns["messages"] = turns_with_image()
        self.files: list[str] = []  #: the paths of made files
        self.rows = rows
        self.is_whole = False  #: whether a data set has no splits if the script asks for none
        self.keeps_all = False  #: whether filters that no made row passes let all pass
        self.passed: list[int] = []  #: lines of statements that are passed over
        self.learnt: list[str] = []  #: what was learnt, in words
        self.maker = Maker()
        self.load()

    def load(self) -> None:
        """Load what was saved."""
        if os.path.exists(self.file):
            with open(self.file, encoding="utf-8") as kept:
                vars(self).update(json.load(kept))

    def save(self) -> None:
        """Save it to the file."""
        own = ("maker", "file", "compared", "labels")
        kept = {name: value for name, value in vars(self).items() if name not in own}
        with open(self.file, "w", encoding="utf-8") as file:
            json.dump(kept, file)

    def guess(self, column: str) -> Shape:
        """Return the shape of a column, by what the script compares it with, or by its name."""
        return self.compared.get(column) or by_name(column, self.labels)

    def shape(self, path: Path | None) -> Shape | None:
        """Return the shape of a part of a row, or None."""
        shape = self.columns.get(path[0]) if path else None
        for step in path[1:] if path else ():
            shape = shape and (shape.get("of") if step in (EACH, INSIDE) else shape.get("keys", {}).get(step))
        return shape

    def put(self, path: Path, shape: Shape, why: str) -> bool:
        """Give a part of a row this shape; return whether that is new. `why` completes the message about it."""
        if not path or self.shape(path) == shape:
            return False
        if len(path) == 1:
            self.columns[path[0]] = shape
        elif (parent := self.shape(path[:-1])) is None:
            return False
        elif path[-1] in (EACH, INSIDE):
            parent["of"] = shape
        else:
            parent.setdefault("keys", {})[path[-1]] = shape
        self.learnt.append(f"{'.'.join(path)} {why}")
        return True

    def set(self, name: str, value: Any, why: str) -> bool:
        """Set an attribute of all rows, such as their number; return whether its value is new."""
        if getattr(self, name) == value:
            return False
        setattr(self, name, value)
        self.learnt += [why] if why else []
        return True

    def add(self, path: Path, key: str) -> bool:
        """Add a key to a part of a row, or a column if there is no path; return whether that is new."""
        if not path:
            return key not in self.columns and self.put((key,), self.guess(key), "is read")
        shape = self.shape(path)
        if shape is None:
            return False
        if shape["kind"] == "json":
            return self.add((*path, INSIDE), key)
        known = dict(shape.get("keys", {})) if shape["kind"] == "dict" else {}
        if key in known:
            return False
        return self.put(path, keyed(**known, **{key: by_name(key)}), f"has the key {key}")

    def made_rows(self, source: str, count: int = 0) -> list[dict[str, Any]]:
        """Return rows of a source, the same in every process; pictures and sounds are repeated from the first rows."""
        count = count or self.rows
        made = {
            name: self.maker.column(name, shape, source, min(count, _HEAVY_ROWS) if _is_heavy(shape) else count)
            for name, shape in self.columns.items()
        }
        return [{name: values[number % len(values)] for name, values in made.items()} for number in range(count)]


def _is_heavy(shape: Shape) -> bool:
    return IMAGE in str(shape) or AUDIO in str(shape)
