"""Make missing data: rows if a script loads a data set or a table, and files if it reads one.

A data set is first looked for on the hub, and a file at its path. Only what is found nowhere is made. `learn` asks for
files, and the schema describes the rows.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import re
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from .cached import repository
from .events import Made, Need, StandIn
from .hooks import wrap
from .log import Log
from .schema import MOST_ROWS, Schema
from .shapes import feature, png, sentences, wav

_FORMATS = frozenset({"json", "csv", "parquet", "text", "arrow", "pandas", "xml", "webdataset"})
_READERS = "csv json parquet excel".split()
_ROWS = 240  # of a made file
_IN_FOLDER = 4  # files of each kind, in a folder that is made
_KINDS = "png jpg jpeg wav flac mp3 txt md json jsonl csv tsv parquet arrow".split()


class Sources:
    """Makes the missing data that one process reads.

    Args:
        log: the log that records what was missing.
        schema: the contents of rows.
        root: the folder of the rehearsal, below which files may be made.
        sample: a file of real rows for every made source, or "".
    """

    def __init__(self, log: Log, schema: Schema, root: str, sample: str = "") -> None:
        self.log, self.schema, self.root = log, schema, root
        self.sample = _sampled(sample) if sample else []
        text = Path(log.script).read_text(encoding="utf-8") if os.path.exists(log.script) else ""
        extensions = re.findall(rf"\.({'|'.join(_KINDS)})\b", text)
        self.kinds = list(dict.fromkeys(extensions)) or ["txt"]
        self.has_splits = re.search(r"\[[\"']train[\"']\]", text) is not None  # of a data set on disk

    def rows(self, name: str, count: int = 0) -> list[dict[str, Any]]:
        """Return the rows of a missing source."""
        if self.sample:
            return (self.sample * (self.schema.rows // len(self.sample) + 1))[: count or self.schema.rows]
        return self.schema.made_rows(name.replace(os.getcwd(), ""), count)  # the same rows in the folder of each run

    def table(self, name: str, columns: list[str] | None = None) -> list[dict[str, Any]]:
        """Return the rows of a table."""
        for column in columns or ():
            self.schema.add((), str(column))
        wanted = columns or list(self.schema.columns)
        if self.sample:
            wanted = list(self.sample[0])
        rows = self.rows(name, _ROWS)
        return [{column: row.get(column, "text") for column in wanted} for row in rows]

    def dataset(self, name: str, split: Any = None, *, streaming: bool = False) -> Any:
        """Return a data set, or one for each split if no split is asked for."""
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
        """Make a missing file or folder; return whether that was possible."""
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
        relative = os.path.relpath(path, os.getcwd())
        if not _kind(path):
            self._fill(path)
        elif not self._write(path):
            return False
        self.schema.files.append(relative)
        self.log.write(Need("files", relative, made=True))
        return True

    def make_known(self) -> None:
        """Make the files that are known to be missing."""
        for name in list(self.schema.files):
            self.make(name)

    def _fill(self, path: str) -> None:
        """Make a folder of files atomically: other ranks may make it or read it at the same time."""
        scratch = f"{path}.{os.getpid()}.part"
        os.makedirs(scratch)
        for name in (f"made{number}.{kind}" for kind in self.kinds for number in range(_IN_FOLDER)):
            self._write(os.path.join(path, name), os.path.join(scratch, name))
        try:
            os.rename(scratch, path)
        except OSError:  # another rank was first
            shutil.rmtree(scratch)

    def _write(self, path: str, into: str = "") -> bool:
        """Write a file of the kind that its suffix names, atomically; return False for an unknown kind."""
        into = into or path
        rng = random.Random(os.path.basename(path))
        made = _content(_kind(path), lambda: self.table(os.path.relpath(path, os.getcwd())), rng)
        if made is None:
            return False
        os.makedirs(os.path.dirname(into), exist_ok=True)
        scratch = f"{into}.{os.getpid()}.part"
        Path(scratch).write_bytes(made if isinstance(made, bytes) else made.encode())
        os.replace(scratch, into)
        return True


def _sampled(path: str) -> list[dict[str, Any]]:
    """Return the rows of a user's sample."""
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


def _content(kind: str, table: Callable[[], list[dict[str, Any]]], rng: random.Random) -> str | bytes | None:
    """Return the contents of a file: the rows of a table, or random contents; None for an unknown kind."""
    match kind:
        case "csv" | "tsv":
            import pandas

            return str(pandas.DataFrame(table()).to_csv(index=False, sep="," if kind == "csv" else "\t"))
        case "parquet":
            import pandas

            return bytes(pandas.DataFrame(table()).to_parquet())
        case "json":
            return json.dumps(table(), default=repr)
        case "jsonl" | "ndjson":
            return "".join(f"{json.dumps(row, default=repr)}\n" for row in table())
        case "txt" | "md" | "log":
            return "".join(f"{sentences(rng)}\n" for _ in range(_ROWS))
        case "png" | "jpg" | "jpeg" | "webp" | "bmp":
            return png(rng)
        case "wav" | "flac" | "mp3" | "ogg" | "m4a":
            return wav(rng)
    return None


def _is_elsewhere(path: Any) -> bool:
    return isinstance(path, str) and "://" in path


def _load_made(sources: Sources, original: Any, path: Any, name: Any = None, *args: Any, **given: Any) -> Any:
    """Let `load_dataset` return made rows if it finds nothing."""
    files = _first(given.get("data_files"))
    wanted: dict[str, Any] = {"split": given.get("split"), "streaming": bool(given.get("streaming"))}
    if path in _FORMATS and _is_elsewhere(files):
        return sources.dataset(files, **wanted)
    is_own = path in _FORMATS or os.path.exists(str(path))
    try:
        return original((not is_own and repository("dataset", str(path))) or path, name, *args, **given)
    except Exception as error:
        if is_own or "Unknown split" in str(error):
            raise
    return sources.dataset(str(path), **wanted)


def _load_made_from_disk(
    sources: Sources, split: str | None, original: Any, path: Any, *args: Any, **given: Any
) -> Any:
    """Let a function that loads a data set from a missing folder return a made one, or one split of it."""
    with contextlib.suppress(FileNotFoundError):
        return original(path, *args, **given)
    sources.log.write(Need("files", str(path), made=True))
    return sources.dataset(str(path), split)


def _first(files: Any) -> Any:
    """Return the first of some data files."""
    while isinstance(files, (dict, list, tuple)) and files:
        files = next(iter(files.values() if isinstance(files, dict) else files))
    return files


def _read_made(sources: Sources, original: Any, path: Any, *args: Any, **given: Any) -> Any:
    """Let pandas read made rows from an address, and if a package that it needs to read a file is not installed."""
    with contextlib.suppress(ImportError):
        if not _is_elsewhere(path):
            return original(path, *args, **given)
    sources.log.write(Need("files", str(path), made=True))
    return sys.modules["pandas"].DataFrame(sources.table(str(path), given.get("names")))


def _select_what_is_there(original: Any, self: Any, indices: Any, *args: Any, **kwargs: Any) -> Any:
    """Let `select(range(n))` return all rows of a stand-in if n is more than any stand-in has."""
    if isinstance(indices, range) and indices.stop > MOST_ROWS >= len(self):
        indices = range(indices.start, len(self), indices.step)
    return original(self, indices, *args, **kwargs)


def _keep_all(sources: Sources, original: Any, self: Any, *args: Any, **given: Any) -> Any:
    """Make a filter that no made row passes keep all rows, once the script has failed without rows."""
    found = original(self, *args, **given)
    table = self.obj if hasattr(type(self), "obj") else self  # `obj` is the table of an indexer, such as `loc`
    is_filter = sources.schema.keeps_all and type(found) is type(table) and len(table) and not len(found)
    # Libraries filter a data set for the script, a table for themselves.
    if not is_filter or not (original.__name__ == "filter" or sources.log.is_asked()):
        return found
    sources.log.write(StandIn("a filter that no made row passes lets all pass"))
    return table


#: Functions that return the rows that meet a condition.
_FILTERS = (
    ("pandas.core.frame", "DataFrame.__getitem__"),
    ("pandas.core.frame", "DataFrame.dropna"),
    ("pandas.core.frame", "DataFrame.query"),
    ("pandas.core.indexing", "_LocationIndexer.__getitem__"),
    ("datasets.arrow_dataset", "Dataset.filter"),
)


def lay(sources: Sources) -> None:
    """Make the files that are known to be missing, and let the libraries return made rows once they are imported."""
    sources.make_known()
    wrap("datasets.load", "load_dataset", _load_made, sources)
    whole = None if sources.has_splits else "train"
    wrap("datasets.load", "load_from_disk", _load_made_from_disk, sources, whole)
    wrap("datasets.arrow_dataset", "Dataset.load_from_disk", _load_made_from_disk, sources, "train")
    wrap("datasets.arrow_dataset", "Dataset.select", _select_what_is_there)
    for kind in _READERS:
        wrap("pandas", f"read_{kind}", _read_made, sources)
    for module, name in _FILTERS:
        wrap(module, name, _keep_all, sources)
