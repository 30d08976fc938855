"""Data that is not there: made rows where a script loads a data set or a table, made files where it reads one.

A data set is asked of the hub first, a file of its place; only what is found nowhere is made. `learn` asks for files,
and the schema tells what rows hold.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import random
import re
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .cached import repository
from .events import Made, Need, StandIn
from .hooks import after_import, wrap
from .schema import MOST_ROWS
from .shapes import feature, png, sentences, wav

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

    from .log import Log
    from .schema import Schema

    Table = Callable[[], list[dict[str, Any]]]

_FORMATS = frozenset({"json", "csv", "parquet", "text", "arrow", "pandas", "xml", "webdataset"})
_READERS = "csv json parquet excel".split()
_ROWS = 240  # of a file
_IN_FOLDER = 4  # files of each kind, in a folder that is made
_KINDS = "png jpg jpeg wav flac mp3 txt md json jsonl csv tsv parquet arrow".split()


class Sources:
    """Makes what one process reads.

    Args:
        log: where it is said what was missing.
        schema: what rows hold.
        root: the folder of the rehearsal, below which files may be made.
        sample: a file of real rows, which every made source has, or "".
    """

    def __init__(self, log: Log, schema: Schema, root: str, sample: str = "") -> None:
        self.log, self.schema, self.root = log, schema, root
        self.sample = _sampled(sample) if sample else []
        text = Path(log.script).read_text(encoding="utf-8") if os.path.exists(log.script) else ""
        said = re.findall(rf"\.({'|'.join(_KINDS)})\b", text)
        self.kinds = list(dict.fromkeys(said)) or ["txt"]
        self.has_splits = re.search(r"\[[\"']train[\"']\]", text) is not None  # of a data set on disk

    def rows(self, name: str, count: int = 0) -> list[dict[str, Any]]:
        """The rows of a source that is not there."""
        if self.sample:
            return (self.sample * (self.schema.rows // len(self.sample) + 1))[: count or self.schema.rows]
        return self.schema.made_rows(name.replace(os.getcwd(), ""), count)  # the same rows in the folder of each run

    def table(self, name: str, columns: list[str] | None = None) -> list[dict[str, Any]]:
        """The rows of a table."""
        for column in columns or ():
            self.schema.add((), str(column))
        wanted = columns or list(self.schema.columns)
        if self.sample:
            wanted = list(self.sample[0])
        rows = self.rows(name, _ROWS)
        return [{column: row.get(column, "text") for column in wanted} for row in rows]

    def dataset(self, name: str, split: Any = None, *, streaming: bool = False) -> Any:
        """A data set, or one for each split where none is asked for."""
        from datasets import Dataset, DatasetDict, Features, ReadInstruction

        self.log.write(Made(name))
        if isinstance(split, (list, tuple)):
            return [self.dataset(name, each, streaming=streaming) for each in split]
        if split is None and not self.schema.is_whole:
            return DatasetDict({each: self.dataset(name, each) for each in self.schema.splits})
        first = str(split or "train").partition("+")[0]
        whole = first.partition("[")[0]
        types = None if self.sample else Features({key: feature(each) for key, each in self.schema.columns.items()})
        made = Dataset.from_list(self.rows(f"{name} {whole}"), features=types)
        (part,) = ReadInstruction.from_spec(first).to_absolute({whole: len(made)})
        made = made.select(range(part.from_, part.to))
        return made.to_iterable_dataset() if streaming else made

    def make(self, name: str) -> bool:
        """Make a file or a folder that is not there; say whether that was possible."""
        path = os.path.normpath(os.path.join(os.getcwd(), name))
        if not path.startswith(self.root + os.sep) or len(path) > 300 or "\0" in name:
            return False
        if "*" in path:
            kind = os.path.splitext(path)[1] or f".{self.kinds[0]}"
            stem = os.path.splitext(path)[0].replace("**" + os.sep, "")
            return sum(self.make(stem.replace("*", f"made{n}") + kind) for n in range(_IN_FOLDER)) > 0
        if os.path.exists(path):
            return False
        if found := re.search(r"made\d(?=\.\w+$)", path):  # one of the names that `learn` gives
            for n in range(_IN_FOLDER):
                self._write(path.replace(found[0], f"made{n}"))
        told = os.path.relpath(path, os.getcwd())
        if not _kind(path):
            self._fill(path)
        elif not self._write(path):
            return False
        self.schema.files.append(told)
        self.log.write(Need("files", told, made=True))
        return True

    def _fill(self, path: str) -> None:
        """Make a folder of files, all of it or nothing: other ranks make it too, or read it already."""
        scratch = f"{path}.{os.getpid()}.part"
        os.makedirs(scratch)
        for name in (f"made{number}.{kind}" for kind in self.kinds for number in range(_IN_FOLDER)):
            self._write(os.path.join(path, name), os.path.join(scratch, name))
        try:
            os.rename(scratch, path)
        except OSError:  # another rank was first
            shutil.rmtree(scratch)

    def _write(self, path: str, into: str = "") -> bool:
        """Write a file of the kind that its name says, all of it or nothing; False for a kind that is not known."""
        into = into or path
        make = _CONTENTS.get(_kind(path))
        if make is None:
            return False
        made = make(lambda: self.table(os.path.relpath(path, os.getcwd())), random.Random(os.path.basename(path)))
        os.makedirs(os.path.dirname(into), exist_ok=True)
        scratch = f"{into}.{os.getpid()}.part"
        Path(scratch).write_bytes(made if isinstance(made, bytes) else made.encode())
        os.replace(scratch, into)
        return True


def _sampled(path: str) -> list[dict[str, Any]]:
    """The rows of a user's sample."""
    import pandas  # type: ignore[import-untyped]

    kind = _kind(path)
    if kind == "parquet":
        table = pandas.read_parquet(path)
    elif kind in ("json", "jsonl"):
        table = pandas.read_json(path, lines=kind == "jsonl")
    else:
        table = pandas.read_csv(path, sep="\t" if kind == "tsv" else ",")
    return list(table.to_dict("records"))


def _kind(name: str) -> str:
    return os.path.splitext(name.split("?")[0])[1].lower().lstrip(".")


def _frame(table: Table) -> Any:
    import pandas

    return pandas.DataFrame(table())


#: What is in a file of each kind, of the rows of a table, or drawn.
_CONTENTS: dict[str, Callable[[Table, random.Random], str | bytes]] = {
    "csv": lambda table, _: _frame(table).to_csv(index=False),
    "tsv": lambda table, _: _frame(table).to_csv(index=False, sep="\t"),
    "parquet": lambda table, _: _frame(table).to_parquet(),
    "json": lambda table, _: json.dumps(table(), default=repr),
    **dict.fromkeys(
        ("jsonl", "ndjson"), lambda table, _: "".join(f"{json.dumps(row, default=repr)}\n" for row in table())
    ),
    **dict.fromkeys(("txt", "md", "log"), lambda _, rng: "".join(f"{sentences(rng)}\n" for _ in range(_ROWS))),
    **dict.fromkeys(("png", "jpg", "jpeg", "webp", "bmp"), lambda _, rng: png(rng)),
    **dict.fromkeys(("wav", "flac", "mp3", "ogg", "m4a"), lambda _, rng: wav(rng)),
}


def _is_elsewhere(path: Any) -> bool:
    return isinstance(path, str) and "://" in path


def _load_made(load: ModuleType, sources: Sources) -> None:
    """Let `load_dataset` and `load_from_disk` give made rows where they find nothing."""

    @wrap(load, "load_dataset")
    def loaded(original: Any, path: Any, name: Any = None, *args: Any, **given: Any) -> Any:
        files = given.get("data_files")
        wanted: dict[str, Any] = {"split": given.get("split"), "streaming": bool(given.get("streaming"))}
        if path in _FORMATS and _is_elsewhere(_first(files)):
            return sources.dataset(_first(files), **wanted)
        is_own = path in _FORMATS or os.path.exists(str(path))
        try:
            return original((not is_own and repository("dataset", str(path))) or path, name, *args, **given)
        except Exception as error:
            if is_own or "Unknown split" in str(error):
                raise
        return sources.dataset(str(path), **wanted)

    _load_made_from_disk(load, "load_from_disk", sources, None if sources.has_splits else "train")


def _load_made_from_disk(owner: ModuleType, name: str, sources: Sources, split: str | None) -> None:
    """Let a function that loads a data set from a folder which is not there make it, or one split of it."""

    @wrap(owner, name)
    def loaded(original: Any, path: Any, *args: Any, **given: Any) -> Any:
        with contextlib.suppress(FileNotFoundError):
            return original(path, *args, **given)
        sources.log.write(Need("files", str(path), made=True))
        return sources.dataset(str(path), split)


def _load_made_rows(rows: ModuleType, sources: Sources) -> None:
    """The same for `Dataset.load_from_disk`."""
    _load_made_from_disk(rows, "Dataset.load_from_disk", sources, "train")


def _first(files: Any) -> Any:
    """The first of some data files."""
    while isinstance(files, (dict, list, tuple)) and files:
        files = next(iter(files.values() if isinstance(files, dict) else files))
    return files


def _read_made(pandas: ModuleType, sources: Sources) -> None:
    """Let pandas read made rows at an address, and where what it needs to read a file is not installed."""
    for kind in _READERS:

        @wrap(pandas, f"read_{kind}")
        def read(original: Any, path: Any, *args: Any, **given: Any) -> Any:
            try:
                if not _is_elsewhere(path):
                    return original(path, *args, **given)
            except ImportError:
                pass
            sources.log.write(Need("files", str(path), made=True))
            return pandas.DataFrame(sources.table(str(path), given.get("names")))


def _select_what_is_there(rows: ModuleType) -> None:
    """Let `select(range(n))` of more rows than any stand-in has give those that it has."""

    @wrap(rows, "Dataset.select")
    def select(original: Any, self: Any, indices: Any, *args: Any, **kwargs: Any) -> Any:
        if isinstance(indices, range) and indices.stop > MOST_ROWS >= len(self):
            indices = range(indices.start, len(self), indices.step)
        return original(self, indices, *args, **kwargs)


def _keep_all(rows: ModuleType, sources: Sources) -> None:
    """Let a filter that no made row passes let all pass, once the script was seen to end without rows."""
    _keep_where_none_is_left(rows, "Dataset.filter", lambda table: table, sources)


def _keep_all_of_table(frame: ModuleType, sources: Sources) -> None:
    """The same for a table of which the script takes the rows that something is true of."""
    indexing = importlib.import_module("pandas.core.indexing")
    for home, name in ((frame, "DataFrame.__getitem__"), (frame, "DataFrame.dropna"), (frame, "DataFrame.query")):
        _keep_where_none_is_left(home, name, lambda table: table, sources)
    _keep_where_none_is_left(indexing, "_LocationIndexer.__getitem__", lambda indexer: indexer.obj, sources)


def _keep_where_none_is_left(module: ModuleType, name: str, table_of: Callable[[Any], Any], sources: Sources) -> None:
    of_libraries = name == "Dataset.filter"  # libraries filter a data set for the script, a table for themselves

    @wrap(module, name)
    def kept(original: Any, self: Any, *args: Any, **given: Any) -> Any:
        found, table = original(self, *args, **given), table_of(self)
        is_filter = sources.schema.keeps_all and type(found) is type(table) and len(table) and not len(found)
        if not is_filter or not (of_libraries or sources.log.is_asked()):
            return found
        sources.log.write(StandIn("a filter that no made row passes lets all pass"))
        return table


def lay(sources: Sources) -> None:
    """Make the files that are known to be missing, and let the libraries give made rows once they are imported."""
    for name in list(sources.schema.files):
        sources.make(name)
    after_import("datasets.load", lambda module: _load_made(module, sources))
    after_import("pandas", lambda module: _read_made(module, sources))
    after_import("pandas.core.frame", lambda module: _keep_all_of_table(module, sources))
    after_import("datasets.arrow_dataset", lambda module: _load_made_rows(module, sources))
    after_import("datasets.arrow_dataset", _select_what_is_there)
    after_import("datasets.arrow_dataset", lambda module: _keep_all(module, sources))
