"""What made rows hold: what the script's text says of columns, and what its preparation was seen to lack."""

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
    """What made rows hold, and what else is made.

    Args:
        file: where it is kept between processes, as JSON.
        text: the script; the columns that it names hold what their names and its comparisons say.
        rows: how many a made data set has at least.
        splits: its splits, where the script does not say which it wants.
    """

    def __init__(self, file: str, text: str, rows: int, splits: list[str]) -> None:
        self.file, self.splits, tree = file, splits, ast.parse(text)
        self.compared = dict(columns.compared(tree))
        self.labels = columns.labels(tree)
        if "KTOTrainer" in text:  # TRL 0.22 asks whether a label is True, not whether it is 1
            self.compared["label"] = one_of([True, False])
        read = {name: shape for name, shape in columns.read_of_rows(tree).items() if "keys" in str(shape)}
        self.columns: dict[str, Shape] = {name: self.guess(name) for name in columns.columns(tree) or ["text"]}
        self.columns |= {name: shape for name, shape in read.items() if self.columns.get(name) == plain()}
        if {"messages", "images"} <= self.columns.keys():
            self.columns["messages"] = turns_with_image()
        self.files: list[str] = []  #: made, by path
        self.rows = rows
        self.is_whole = False  #: a data set is not divided into splits where the script asks for none
        self.keeps_all = False  #: filters that no made row passes let all pass
        self.passed: list[int] = []  #: lines of statements that are passed over
        self.learnt: list[str] = []  #: in words
        self.maker = Maker()
        self.load()

    def load(self) -> None:
        """Take what was kept."""
        if os.path.exists(self.file):
            with open(self.file, encoding="utf-8") as kept:
                vars(self).update(json.load(kept))

    def save(self) -> None:
        """Keep it."""
        own = ("maker", "file", "compared", "labels")
        kept = {name: value for name, value in vars(self).items() if name not in own}
        with open(self.file, "w", encoding="utf-8") as file:
            json.dump(kept, file)

    def guess(self, column: str) -> Shape:
        """What a column holds, by what the script compares it with, or by its name."""
        return self.compared.get(column) or by_name(column, self.labels)

    def shape(self, path: Path | None) -> Shape | None:
        """The shape of a part of a row."""
        shape = self.columns.get(path[0]) if path else None
        for step in path[1:] if path else ():
            shape = shape and (shape.get("of") if step in (EACH, INSIDE) else shape.get("keys", {}).get(step))
        return shape

    def put(self, path: Path, shape: Shape, why: str) -> bool:
        """Let a part of a row have this shape; return whether that is new. `why` is told."""
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
        """Let what holds for all rows, such as their number, have this value; return whether that is new."""
        if getattr(self, name) == value:
            return False
        setattr(self, name, value)
        self.learnt += [why] if why else []
        return True

    def add(self, path: Path, key: str) -> bool:
        """Let a part of a row be a dictionary with this key, too; a row itself where there is no path."""
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
        """Rows of a source, the same in every process; pictures and sounds are those of the first rows again."""
        count = count or self.rows
        made = {
            name: self.maker.column(name, shape, source, min(count, _HEAVY_ROWS) if _is_heavy(shape) else count)
            for name, shape in self.columns.items()
        }
        return [{name: values[number % len(values)] for name, values in made.items()} for number in range(count)]


def _is_heavy(shape: Shape) -> bool:
    return IMAGE in str(shape) or AUDIO in str(shape)
