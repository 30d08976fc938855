"""Tables that are not there: a small stand-in where `load_dataset` or pandas is given an address, or a missing file."""

from __future__ import annotations

import csv
import functools
import json
import os
import random
from typing import TYPE_CHECKING, Any

from .hooks import after_import
from .rows import kind_of, value

if TYPE_CHECKING:
    from types import ModuleType

    from .log import Log

_KINDS = (".csv", ".json", ".jsonl")


class Tables:
    """Makes the tables of one process.

    Args:
        log: where it is said what was missing.
        folder: where they are written.
        columns: what the script calls the columns of its data.
    """

    def __init__(self, log: Log, folder: str, columns: list[str]) -> None:
        self.log, self.folder, self.columns = log, folder, columns or ["text"]

    def __call__(self, path: Any, columns: list[str] | None = None) -> Any:
        """The path of a stand-in for `path` with these columns, or `path` itself where it needs none."""
        if isinstance(path, dict):
            return {key: self(each, columns) for key, each in path.items()}
        if isinstance(path, (list, tuple)):
            return [self(each, columns) for each in path]
        if not isinstance(path, (str, os.PathLike)):
            return path
        name = os.fspath(path)
        kind = os.path.splitext(name.split("?")[0])[1].lower()
        is_there = "://" not in name and (os.path.exists(name) or "*" in name)
        if kind not in _KINDS or is_there or name.startswith("hf://"):
            return path
        self.log.write("need", what="files", name=name)
        return self._written(name, kind, columns or self.columns)

    def _written(self, name: str, kind: str, columns: list[str]) -> str:
        rng = random.Random(name)
        rows = [{column: value(kind_of(column), rng) for column in columns} for _ in range(240)]
        os.makedirs(self.folder, exist_ok=True)
        path = os.path.join(self.folder, os.path.basename(name.split("?")[0]))
        with open(path, "w", encoding="utf-8", newline="") as file:
            if kind == ".csv":
                lines = csv.DictWriter(file, columns)
                lines.writeheader()
                lines.writerows(rows)
            elif kind == ".json":
                json.dump(rows, file)
            else:
                file.writelines(json.dumps(row) + "\n" for row in rows)
        return path


def lay(log: Log, columns: list[str]) -> None:
    """Do so once datasets or pandas has been imported."""
    tables = Tables(log, os.path.join(os.environ["TMPDIR"], "tables", os.environ.get("RANK", "0")), columns)

    def load_dataset(load: ModuleType) -> None:
        original = load.__dict__["load_dataset"]

        @functools.wraps(original)
        def loaded(*args: Any, data_files: Any = None, **kwargs: Any) -> Any:
            return original(*args, data_files=tables(data_files, kwargs.get("column_names")), **kwargs)

        load.__dict__["load_dataset"] = loaded

    def read(pandas: ModuleType) -> None:
        for name in ("read_csv", "read_json"):
            original = getattr(pandas, name)
            setattr(
                pandas, name, lambda path, *args, original=original, **kwargs: original(tables(path), *args, **kwargs)
            )

    after_import("datasets.load", load_dataset)
    after_import("pandas", read)
