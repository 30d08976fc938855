"""Build stand-ins for models and data sets of the hub when they are first asked for, in the layout of its cache.

The processes of a rehearsal are offline, and read that cache
(https://huggingface.co/docs/huggingface_hub/guides/manage-cache). `stage/cached.py` asks for a repository by a file in
the folder `asked`. The file is removed once the repository is built, or cannot be built.
"""

from __future__ import annotations

import contextlib
import json
import re
import threading
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from nb2ddp.rehearsal.stage.cached import COMMIT


@dataclass(frozen=True)
class DataHints:
    """What a script says about a data set that it loads."""

    splits: tuple[str, ...] = ("train", "test", "validation")
    configs: tuple[str, ...] = ("default",)
    rows: int = 1200


@dataclass
class Hub:
    """The stand-in repositories, below one folder.

    Args:
        folder: the folder of the cache.
        build: builds a repository for a request to `stage/build.py`; returns "", or what went wrong.
        hints: what the script says about its data sets, by id; "" is any other data set.
        sees: whether its models are given pictures.
        models: ids that the script will ask for. While there are no requests, these and the data sets are built.
    """

    folder: Path
    build: Callable[[dict[str, Any]], str]
    hints: Mapping[str, DataHints] = field(default_factory=dict)
    sees: bool = False
    models: Sequence[str] = ()
    offered: dict[tuple[str, str], str] = field(default_factory=dict)  #: (kind, id) -> what went wrong, or ""

    def __post_init__(self) -> None:
        self._closed = threading.Event()
        self._expected = [("models", name) for name in self.models]
        self._expected += [("datasets", name) for name in self.hints if name]
        self._built = cache(self._build)
        self.is_building = False
        (self.folder / "asked").mkdir(parents=True)
        threading.Thread(target=self._answer, daemon=True).start()

    def close(self) -> None:
        """Stop answering requests."""
        self._closed.set()

    @property
    def origins(self) -> dict[str, str]:
        """Where the offered repositories come from, by id: "hub", "cache" (the real one, made small) or "stand-in"."""
        return {name: origin_of(self._place(kind, name)) for kind, name in self.offered}

    def _answer(self) -> None:
        while not self._closed.wait(0.05):
            with contextlib.suppress(OSError):
                for file in (asked := [*(self.folder / "asked").iterdir()]):
                    kind, _, name = file.name.partition("--")
                    name = name.replace("--", "/")
                    if _is_offered(kind, name, self.hints):
                        self.offered[kind, name] = self._built(kind, name)
                    file.unlink()
                if self._expected and not asked:
                    self._built(*self._expected.pop(0))

    def _place(self, kind: str, name: str) -> Path:
        return self.folder / f"{kind}--{name.replace('/', '--')}" / "snapshots" / COMMIT

    def _build(self, kind: str, name: str) -> str:
        """Build a repository; return what went wrong, or ""."""
        place, hints = self._place(kind, name), self.hints.get(name) or self.hints.get("", DataHints())
        refs = place.parents[1] / "refs"
        request: dict[str, Any] = {"kind": kind, "name": name, "folder": str(place)}
        self.is_building = True
        try:
            for folder in (place.parent, refs):
                folder.mkdir(parents=True)
            (refs / "main").write_text(COMMIT)
            return self.build(request | (vars(hints) if kind == "datasets" else {"sees": self.sees}))
        except Exception as error:  # a process waits for the answer
            return f"{type(error).__name__}: {error}"
        finally:
            self.is_building = False


def origin_of(folder: Path) -> str:
    """Return the origin that `stage/build.py` has recorded for a repository."""
    file = Path(f"{folder}.origin")
    return file.read_text() if file.exists() else "stand-in"


def _is_offered(kind: str, name: str, hints: Mapping[str, DataHints]) -> bool:
    """Return whether an id may be one of the hub: not a folder of the script, nor a counter of starts."""
    if name.startswith("unslothai/"):
        return False
    known = kind == "datasets" and name in hints
    return "/" in name or known or bool(re.match(r"gpt2|bert-|distilbert|roberta|t5-", name))


class _Answers(BaseHTTPRequestHandler):
    """Answers with a digit, always the same for a request, in the fields of OpenAI's and Ollama's servers."""

    def do_GET(self) -> None:
        asked = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        digit = str(zlib.crc32(asked) % 10)
        item = {"index": 0, "text": digit, "message": {"role": "assistant", "content": digit}, "finish_reason": "stop"}
        models = [{"id": "stand-in", "object": "model"}]
        answer = json.dumps({"choices": [item], "data": models, "message": item["message"], "response": digit}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    do_POST = do_PUT = do_DELETE = do_GET

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing."""


@contextlib.contextmanager
def answering_server() -> Iterator[int]:
    """Provide the port of a server that replaces those that a script would have started; it answers with a digit."""
    with ThreadingHTTPServer(("127.0.0.1", 0), _Answers) as server:
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server.server_address[1]
        server.shutdown()
