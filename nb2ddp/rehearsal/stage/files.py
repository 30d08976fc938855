"""Files that are not there: a small stand-in where a script names one of a clear kind, or the address of a table.

Through `open`, PIL and soundfile (and with it librosa), and where `load_dataset` or pandas is given one.
"""

from __future__ import annotations

import builtins
import csv
import functools
import io
import json
import os
import random
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .hooks import after_import
from .rows import MOST_ROWS, kind_of, png, sentences, value, wav

if TYPE_CHECKING:
    from types import ModuleType

    from .log import Log

TABLES, TEXTS = (".csv", ".json", ".jsonl"), (".txt", ".md")
PICTURES, SOUNDS = (".png", ".jpg", ".jpeg"), (".wav", ".flac", ".mp3")  # readers go by the content, not by the name


class Files:
    """Makes the files of one process.

    Args:
        log: where it is said what was missing.
        folder: where they are written.
        columns: what the script calls the columns of its data.
        text: the script.
        known: what may be missing: files that the run of one process did not find; None in that run itself. Another
            one is a fault of the script.
    """

    def __init__(
        self, log: Log, folder: str, columns: list[str], text: str = "", known: list[str] | None = None
    ) -> None:
        self.log, self.folder, self.columns, self.text, self.known = log, folder, columns or ["text"], text, known

    def table(self, path: Any, columns: list[str] | None = None) -> Any:
        """The path of a stand-in for a table with these columns, or `path` itself where it needs none."""
        if isinstance(path, dict):
            return {key: self.table(each, columns) for key, each in path.items()}
        if isinstance(path, (list, tuple)):
            return [self.table(each, columns) for each in path]
        if not isinstance(path, (str, os.PathLike)):
            return path
        name = _in_run(os.fspath(path))
        is_there = "://" not in name and (os.path.exists(name) or "*" in name)
        if _kind(name) not in TABLES or is_there or name.startswith("hf://"):
            return path
        return self._made(name, columns or self.columns)

    def named(self, path: Any) -> Any:
        """The path of a stand-in for a file that the script names, or `path` itself where it needs none."""
        if not isinstance(path, (str, os.PathLike)) or not isinstance(os.fspath(path), str):
            return path
        name = _in_run(os.fspath(path))
        if _kind(name) not in (*TABLES, *TEXTS, *PICTURES, *SOUNDS) or os.path.exists(name):
            return path
        if os.path.basename(name) not in self.text or not self.log.place():
            return path
        return self._made(name, self.columns) if self.known is None or name in self.known else path

    def _made(self, name: str, columns: list[str]) -> str:
        self.log.write("need", what="files", name=name, made=True)
        path = os.path.join(self.folder, os.path.basename(name.split("?")[0]))
        if not os.path.exists(path):
            os.makedirs(self.folder, exist_ok=True)
            rng, kind = random.Random(name), _kind(name)
            if kind in TABLES:
                _write_table(path, [{column: value(kind_of(column), rng) for column in columns} for _ in range(240)])
            elif kind in TEXTS:
                Path(path).write_text(sentences(rng) + "\n", encoding="utf-8")
            else:
                Path(path).write_bytes(png(rng) if kind in PICTURES else wav(rng))
        return path


def _in_run(name: str) -> str:
    """A file's name as seen from the run's folder, which every run has at another place."""
    return name.removeprefix(os.getcwd() + os.sep)


def _kind(name: str) -> str:
    return os.path.splitext(name.split("?")[0])[1].lower()


def _write_table(path: str, rows: list[dict[str, Any]]) -> None:
    with open(path, "w", encoding="utf-8", newline="") as file:
        if path.endswith(".csv"):
            lines = csv.DictWriter(file, list(rows[0]))
            lines.writeheader()
            lines.writerows(rows)
        elif path.endswith(".json"):
            json.dump(rows, file)
        else:
            file.writelines(json.dumps(row) + "\n" for row in rows)


def _open_stand_ins(files: Files) -> None:
    """Let `open`, and with it pathlib, PIL and whatever else is written in Python, read stand-ins."""
    original = builtins.open

    @functools.wraps(original)
    def opened(file: Any, mode: str = "r", *args: Any, **kwargs: Any) -> Any:
        return original(files.named(file) if mode.startswith("r") and "+" not in mode else file, mode, *args, **kwargs)

    builtins.open = io.open = opened


def _answer_with_texts(sessions: ModuleType, log: Log) -> None:
    """Give made-up sentences for a text at an address, where the script asks for one with `requests`.

    huggingface_hub before 1.0 asks the hub with `requests` too; the hub of the rehearsal answers itself.
    """
    import requests

    hub = os.environ["HF_ENDPOINT"] + "/"

    original = sessions.Session.request

    @functools.wraps(original)
    def request(self: Any, method: str, url: str, *args: Any, **kwargs: Any) -> Any:
        is_text = method.upper() == "GET" and url.split("?")[0].endswith((".txt", ".utf-8", ".md"))
        if not is_text or url.startswith(hub) or not log.place():
            return original(self, method, url, *args, **kwargs)
        log.write("need", what="files", name=url)
        answer = requests.Response()
        answer.status_code, answer.url, answer.encoding = 200, url, "utf-8"
        rng = random.Random(url)
        answer.raw = io.BytesIO("\n".join(sentences(rng) for _ in range(400)).encode())
        return answer

    sessions.Session.request = request


def _select_what_is_there(rows: ModuleType) -> None:
    """Let a script take the first so many rows of a stand-in that has fewer."""
    original = rows.Dataset.select

    @functools.wraps(original)
    def select(self: Any, indices: Any, *args: Any, **kwargs: Any) -> Any:
        if isinstance(indices, range) and indices.stop > MOST_ROWS >= len(self):
            indices = range(indices.start, len(self), indices.step)
        return original(self, indices, *args, **kwargs)

    rows.Dataset.select = select


def _divide_freely(splits: ModuleType) -> None:
    """Divide made-up rows that no two are alike in, where the script wants each kind of them on both sides."""
    original = splits.__dict__["train_test_split"]

    @functools.wraps(original)
    def divided(*rows: Any, stratify: Any = None, **kwargs: Any) -> Any:
        try:
            return original(*rows, stratify=stratify, **kwargs)
        except ValueError:
            return original(*rows, **kwargs)

    splits.__dict__["train_test_split"] = divided


def lay(log: Log, columns: list[str], known: list[str] | None) -> None:
    """Do so, in the libraries once they have been imported; `known` as in `Files`."""
    folder = os.path.join(os.environ["TMPDIR"], "files", os.environ.get("RANK", "0"))
    files = Files(log, folder, columns, Path(log.script).read_text(encoding="utf-8"), known)
    _open_stand_ins(files)

    def hear(soundfile: ModuleType) -> None:
        original = soundfile.SoundFile.__init__

        @functools.wraps(original)
        def init(self: Any, file: Any, mode: Any = "r", *args: Any, **kwargs: Any) -> None:
            original(self, files.named(file) if mode in ("r", None) else file, mode, *args, **kwargs)

        soundfile.SoundFile.__init__ = init

    def load_dataset(load: ModuleType) -> None:
        original = load.__dict__["load_dataset"]

        @functools.wraps(original)
        def loaded(*args: Any, data_files: Any = None, **kwargs: Any) -> Any:
            return original(*args, data_files=files.table(data_files, kwargs.get("column_names")), **kwargs)

        load.__dict__["load_dataset"] = loaded

    def read(pandas: ModuleType) -> None:
        for name in ("read_csv", "read_json"):
            original = getattr(pandas, name)

            def table(path: Any, *args: Any, original: Any = original, **kwargs: Any) -> Any:
                return original(files.table(path), *args, **kwargs)

            setattr(pandas, name, functools.wraps(original)(table))

    after_import("requests.sessions", lambda module: _answer_with_texts(module, log))
    after_import("soundfile", hear)
    after_import("datasets.load", load_dataset)
    after_import("pandas", read)
    after_import("datasets.arrow_dataset", _select_what_is_there)
    after_import("sklearn.model_selection", _divide_freely)
