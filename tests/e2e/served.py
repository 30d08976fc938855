"""A local hub for processes that build stand-ins, with the part of the HTTP interface that the hub's client uses."""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
import threading
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

_COMMIT = "0123456789abcdef0123456789abcdef01234567"
_DATE = "2025-01-01T00:00:00.000Z"
_ACTIONS = "revision tree paths-info refs commits preupload commit branch tag settings xet-write-token treesize".split()


class Served:
    """A local hub.

    Args:
        folder: the folder in which its repositories are created.
        build: builds a repository, given its kind ("models", "datasets"), id and folder.
    """

    def __init__(self, folder: Path, build: Callable[[str, str, Path], None]) -> None:
        self.folder, self.build, self.asked = folder, build, list[str]()
        self._lock = threading.Lock()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Handler,), {"hub": self}))
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        self.address = f"http://127.0.0.1:{self._server.server_address[1]}"

    def close(self) -> None:
        """Stop answering."""
        self._server.shutdown()
        self._server.server_close()

    def repository(self, kind: str, name: str) -> Path | None:
        """Return the folder of a repository, and build it if it is missing; None if there is no such repository."""
        if "/" not in name:
            return None
        folder = self.folder / kind / name.replace("/", "--")
        with self._lock:
            if not folder.is_dir():
                folder.mkdir(parents=True)
                self.build(kind, name, folder)
        return folder


def _entries(folder: Path, below: str = "", *, recursive: bool = True) -> list[dict[str, Any]]:
    """Return the hub's descriptions of the files of a folder."""
    found = []
    for path in sorted((folder / below).rglob("*") if recursive else (folder / below).glob("*")):
        about: dict[str, Any] = {"path": path.relative_to(folder).as_posix(), "oid": _tag(path), "size": 0}
        about |= {"type": "file", "size": path.stat().st_size} if path.is_file() else {"type": "directory"}
        found.append(about)
    return found


def _tag(path: Path) -> str:
    """Return a tag for the content of a file that never changes."""
    return hashlib.sha1(f"{path}{path.stat().st_size}".encode()).hexdigest()


class _Handler(BaseHTTPRequestHandler):
    """Answer the requests of one connection."""

    hub: Served
    protocol_version = "HTTP/1.1"

    def handle(self) -> None:
        """Answer until the other side closes the connection, in whatever way."""
        with contextlib.suppress(ConnectionError):
            super().handle()

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing: the processes log what they load."""

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

    def do_GET(self) -> None:
        address = urlsplit(self.path)
        path = unquote(address.path)
        resolve = re.match(r"/(datasets/|spaces/)?(.+?)/(?:resolve|raw)/[^/]+/(.+)", path)
        if path.startswith("/api/"):
            self.api(path, {key: values[-1] for key, values in parse_qs(address.query).items()})
        elif resolve:
            self.file((resolve[1] or "models/").rstrip("/"), resolve[2], resolve[3])
        else:
            self.lacks("EntryNotFound")

    do_HEAD = do_GET

    def body(self) -> bytes:
        """Return the body of a request, sent with a known length or in chunks."""
        if "chunked" not in self.headers.get("Transfer-Encoding", ""):
            return self.rfile.read(int(self.headers.get("Content-Length") or 0))
        chunks = []
        while size := int(self.rfile.readline().split(b";")[0], 16):
            chunks.append(self.rfile.read(size))
            self.rfile.readline()
        self.rfile.readline()
        return b"".join(chunks)

    def do_POST(self) -> None:
        self.api(unquote(urlsplit(self.path).path), _form(self.body()))

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
        self.hub.asked.append(path)
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
    """Return the fields of a request, such as its paths, from JSON or a form."""
    try:
        return dict(json.loads(body))
    except ValueError:
        return dict(parse_qs(body.decode()))
