"""A hub of this machine alone: any model and data set, small and random, built when it is first asked for.

It speaks as much of the hub's HTTP interface (https://huggingface.co/docs/hub/api) as huggingface_hub, transformers and
datasets use, and takes uploads without keeping them. The processes of a rehearsal are told of it by HF_ENDPOINT.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

_COMMIT = "0123456789abcdef0123456789abcdef01234567"
_DATE = "2025-01-01T00:00:00.000Z"
_ACTIONS = "revision tree paths-info refs commits preupload commit branch tag settings xet-write-token treesize".split()
_USER = {
    "type": "user",
    "id": "0",
    "name": "rehearsal",
    "fullname": "rehearsal",
    "email": "",
    "orgs": [],
    "isPro": False,
}
_TOKEN = {"accessToken": {"displayName": "rehearsal", "role": "write", "createdAt": _DATE}, "type": "access_token"}


@dataclass(frozen=True)
class DataHints:
    """What a script says about a data set that it loads."""

    used: tuple[str, ...] = ()  #: columns
    splits: tuple[str, ...] = ("train", "test", "validation")
    configs: tuple[str, ...] = ("default",)
    rows: int = 1200


@dataclass
class Hub:
    """The repositories, below one folder.

    Args:
        folder: where they are built; what is there already is offered as it is.
        build: makes a repository, as `stage/build.py` is asked to; gives "", or what went wrong.
        hints: what the script says about its data sets, by id; under "" about any other.
        sees: its models are given pictures.
    """

    folder: Path
    build: Callable[[dict[str, Any]], str]
    hints: Mapping[str, DataHints] = field(default_factory=dict)
    sees: bool = False
    offered: dict[tuple[str, str], str] = field(default_factory=dict)  #: (type, id) -> what went wrong, or ""

    def __post_init__(self) -> None:
        self._lock = threading.Lock()
        self._problems: dict[Path, str] = {}  #: folder of a repository -> what went wrong, or ""
        self.is_building = False
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Handler,), {"hub": self}))
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        self.address = f"http://127.0.0.1:{self._server.server_address[1]}"

    def close(self) -> None:
        """Stop answering."""
        self._server.shutdown()
        self._server.server_close()

    def prepare(self, models: Sequence[str], datasets: Sequence[str]) -> None:
        """Begin to build what will be asked for."""

        def build() -> None:
            for kind, names in (("models", models), ("datasets", datasets)):
                for name in names:
                    self._built(kind, name)

        threading.Thread(target=build, daemon=True).start()

    def repository(self, kind: str, name: str) -> Path | None:
        """The folder of a repository, built if it is missing; None where there is no such repository."""
        if kind not in ("models", "datasets") or not _is_offered(kind, name, self.hints):
            return None
        folder, self.offered[kind, name] = self._built(kind, name)
        return folder if folder.is_dir() else None

    @property
    def origins(self) -> dict[str, str]:
        """Where the offered repositories come from, by id: "hub", "cache" (the real one, made small) or "stand-in"."""
        return {name: origin_of(self._built(kind, name)[0]) for kind, name in self.offered}

    def _built(self, kind: str, name: str) -> tuple[Path, str]:
        """The folder of a repository, and what went wrong when it was built."""
        hints = self.hints.get(name) or self.hints.get("", DataHints())
        made = hashlib.sha1(repr(hints).encode()).hexdigest()[:8] if kind == "datasets" else "sees" * self.sees
        folder = self.folder / kind / f"{name.replace('/', '--')}{made and '--'}{made}"
        with self._lock:
            if folder not in self._problems:
                self._problems[folder] = "" if folder.is_dir() else self._build(kind, name, folder, hints)
        return folder, self._problems[folder]

    def _build(self, kind: str, name: str, folder: Path, hints: DataHints) -> str:
        folder.parent.mkdir(parents=True, exist_ok=True)
        request: dict[str, Any] = {"type": kind, "name": name, "folder": str(folder)}
        self.is_building = True
        try:
            return self.build(request | (vars(hints) if kind == "datasets" else {"sees": self.sees}))
        except OSError as error:
            return str(error)
        finally:
            self.is_building = False


def origin_of(folder: Path) -> str:
    """What `stage/build.py` says of a repository that it has made."""
    said = Path(f"{folder}.origin")
    return said.read_text() if said.exists() else "stand-in"


def _is_offered(kind: str, name: str, hints: Mapping[str, DataHints]) -> bool:
    """Whether an id may be one of the hub's: not a name of the script's own folders, nor a counter of starts."""
    if name.startswith("unslothai/"):
        return False
    known = kind == "datasets" and name in hints
    return "/" in name or known or bool(re.match(r"gpt2|bert-|distilbert|roberta|t5-", name))


def _entries(folder: Path, below: str = "", *, recursive: bool = True) -> list[dict[str, Any]]:
    """What the hub says about the files of a folder."""
    found = []
    for path in sorted((folder / below).rglob("*") if recursive else (folder / below).glob("*")):
        about: dict[str, Any] = {"path": path.relative_to(folder).as_posix(), "oid": _tag(path), "size": 0}
        about |= {"type": "file", "size": path.stat().st_size} if path.is_file() else {"type": "directory"}
        found.append(about)
    return found


def _tag(path: Path) -> str:
    """A name for the content of a file that is never changed."""
    return hashlib.sha1(f"{path}{path.stat().st_size}".encode()).hexdigest()


class _Handler(BaseHTTPRequestHandler):
    """Answers one connection."""

    hub: Hub
    protocol_version = "HTTP/1.1"

    def handle(self) -> None:
        """Answer until the other side leaves, in whatever way."""
        with contextlib.suppress(ConnectionError):
            super().handle()

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing: the processes say what they load."""

    def say(self, about: Any, status: int = 200, /, **headers: str) -> None:
        body = about if isinstance(about, bytes) else json.dumps(about).encode()
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def lacks(self, code: str) -> None:
        self.say({"error": code}, 404, X_Error_Code=code, X_Error_Message=f"{code}: no such thing in a rehearsal")

    def is_other(self) -> bool:
        """Whether a server is asked that the script would have started, and answers for it."""
        address = urlsplit(self.hub.address)
        if self.headers.get("Host", address.netloc) == address.netloc:
            return False
        self.say({})
        return True

    def do_GET(self) -> None:
        if self.is_other():
            return
        address = urlsplit(self.path)
        path = unquote(address.path)
        resolve = re.match(r"/(datasets/|spaces/)?(.+?)/(?:resolve|raw)/[^/]+/(.+)", path)
        if path == "/api/whoami-v2":
            self.say(_USER | {"auth": _TOKEN})
        elif path.startswith("/api/"):
            self.api(path, {key: values[-1] for key, values in parse_qs(address.query).items()})
        elif resolve:
            self.file((resolve[1] or "models/").rstrip("/"), resolve[2], resolve[3])
        else:
            self.lacks("EntryNotFound")

    do_HEAD = do_GET

    def body(self) -> bytes:
        """What was sent, of a known length or in chunks."""
        if "chunked" not in self.headers.get("Transfer-Encoding", ""):
            return self.rfile.read(int(self.headers.get("Content-Length") or 0))
        chunks = []
        while size := int(self.rfile.readline().split(b";")[0], 16):
            chunks.append(self.rfile.read(size))
            self.rfile.readline()
        self.rfile.readline()
        return b"".join(chunks)

    def do_POST(self) -> None:
        body = self.body()
        if self.is_other():
            return
        path = unquote(urlsplit(self.path).path)
        if path == "/api/validate-yaml":
            self.say({"warnings": [], "errors": []})
        elif path == "/api/repos/create":
            name = json.loads(body)
            full = f"{name.get('organization') or _USER['name']}/{name['name']}"
            self.say({"url": f"{self.hub.address}/{full}", "name": full, "id": full})
        elif "/preupload/" in path:
            how = {"uploadMode": "regular", "shouldIgnore": False}
            self.say({"files": [{"path": file["path"], **how} for file in json.loads(body)["files"]]})
        elif "/paths-info/" in path:
            self.api(path, _form(body))
        else:
            name = re.sub(r"^/api/(models/)?|/(commit|branch|tag|settings)\b.*", "", path)
            url = f"{self.hub.address}/{name}/commit/{_COMMIT}"
            self.say({"success": True, "commitUrl": url, "commitOid": _COMMIT, "hookOutput": "", "url": url})

    do_PUT = do_DELETE = do_POST

    def api(self, path: str, asked: Mapping[str, Any]) -> None:
        _, kind, *rest = path.strip("/").split("/")
        at = next((i for i, part in enumerate(rest) if i and part in _ACTIONS), len(rest))
        name, action = "/".join(rest[:at]), rest[at] if at < len(rest) else "info"
        folder = self.hub.repository(kind, name) if name else None
        if folder is None:
            self.lacks("RepoNotFound")
        elif action == "tree":
            below = "/".join(rest[at + 2 :])
            if (folder / below).is_dir():
                self.say(_entries(folder, below, recursive=asked.get("recursive", "").lower() == "true"))
            else:
                self.lacks("EntryNotFound")
        elif action == "paths-info":
            self.say([entry for entry in _entries(folder) if entry["path"] in asked.get("paths", ())])
        elif action == "refs":
            main = {"name": "main", "ref": "refs/heads/main", "targetCommit": _COMMIT}
            self.say({"branches": [main], "converts": [], "tags": []})
        else:
            self.say(_information(kind, name, folder))

    def file(self, kind: str, name: str, path: str) -> None:
        folder = self.hub.repository(kind, name)
        if folder is None:
            self.lacks("RepoNotFound")
        elif not (folder / path).is_file():
            self.lacks("EntryNotFound")
        else:
            about = {"ETag": f'"{_tag(folder / path)}"', "X_Repo_Commit": _COMMIT, "Accept_Ranges": "bytes"}
            data = (folder / path).read_bytes()
            if part := re.match(r"bytes=(\d+)-(\d*)", self.headers.get("Range") or ""):
                end = min(int(part[2] or len(data)), len(data) - 1)
                span = f"bytes {part[1]}-{end}/{len(data)}"
                self.say(data[int(part[1]) : end + 1], 206, Content_Range=span, **about)
            else:
                self.say(data, **about)


def _information(kind: str, name: str, folder: Path) -> dict[str, Any]:
    files = [entry for entry in _entries(folder) if entry["type"] == "file"]
    return {
        "_id": name,
        "id": name,
        "modelId": name,
        "sha": _COMMIT,
        "lastModified": _DATE,
        "createdAt": _DATE,
        "private": False,
        "gated": False,
        "disabled": False,
        "downloads": 0,
        "likes": 0,
        "tags": [],
        "siblings": [{"rfilename": entry["path"], "size": entry["size"]} for entry in files],
    }


def _form(body: bytes) -> dict[str, Any]:
    """The paths that are asked for, in JSON or as a form."""
    try:
        return dict(json.loads(body))
    except ValueError:
        return dict(parse_qs(body.decode()))
