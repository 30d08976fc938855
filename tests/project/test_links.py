"""Links: where the file is that one shows, and what is fetched from a server of this test's own."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from nb2ddp.project import links
from nb2ddp.project.links import file_address, file_name, is_link
from nb2ddp.results import NotebookError
from tests.command import Command

NOTEBOOK = "unslothai/notebooks/main/nb/Llama3.1_(8B)-Alpaca.ipynb"
BLOB = "unslothai/notebooks/blob/main/nb/Llama3.1_(8B)-Alpaca.ipynb"
RAW = f"https://raw.githubusercontent.com/{NOTEBOOK}"


class TestAddress:
    @pytest.mark.parametrize(
        ("link", "address"),
        [
            (f"https://colab.research.google.com/github/{BLOB}", RAW),
            (f"https://github.com/{BLOB}", RAW),
            (f"https://github.com/{BLOB}?plain=1#L3", RAW),
            (f"https://github.com/{BLOB.replace('/blob/', '/raw/')}", RAW),
            (RAW, RAW),
            (f"https://www.kaggle.com/notebooks/welcome?src=https://github.com/{BLOB}&accelerator=nvidiaTeslaT4", RAW),
            (
                "https://colab.research.google.com/#fileId=https%3A//huggingface.co/o/m/blob/main/x.ipynb",
                "https://huggingface.co/o/m/resolve/main/x.ipynb",
            ),
            (
                "https://huggingface.co/datasets/o/d/blob/main/nb/x.ipynb",
                "https://huggingface.co/datasets/o/d/resolve/main/nb/x.ipynb",
            ),
            ("https://example.com/x.ipynb?v=2#cell", "https://example.com/x.ipynb?v=2"),
        ],
    )
    def test_of_the_file_that_a_link_shows(self, link: str, address: str) -> None:
        assert is_link(link)
        assert file_address(link) == address

    @pytest.mark.parametrize(
        ("link", "message"),
        [
            ("http://example.com/x.ipynb", "only https links are fetched"),
            ("ftp://example.com/x.ipynb", "only https links are fetched"),
            ("https:///x.ipynb", "only https links are fetched"),
            ("https://www.kaggle.com/code/someone/a-notebook", "kaggle kernels pull someone/a-notebook"),
            ("https://www.kaggle.com/notebooks/welcome?src=file:///etc/passwd", "only https links are fetched"),
        ],
    )
    def test_of_none(self, link: str, message: str) -> None:
        with pytest.raises(NotebookError, match=message):
            file_address(link)

    @pytest.mark.parametrize(
        ("link", "name"),
        [
            (f"https://colab.research.google.com/github/{BLOB}", "Llama3.1_(8B)-Alpaca.ipynb"),
            ("https://example.com/My%20Notebook.ipynb?x=1", "My Notebook.ipynb"),
            ("https://molab.marimo.io/github/o/r/blob/main/x.py", "x.py"),
            ("https://gist.github.com/someone/0a1b2c", "0a1b2c"),
            ("https://example.com/", "notebook"),
        ],
    )
    def test_name(self, link: str, name: str) -> None:
        assert file_name(link) == name


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[tuple[str, dict[str, str]]]]:
    """A web server in place of the addresses below `https://example.com`; what was asked of it."""
    asked: list[tuple[str, dict[str, str]]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append((self.path, dict(self.headers)))
            if self.path in ("/missing.ipynb", "/moved"):
                self.send_response(404 if self.path != "/moved" else 302)
                self.send_header("Location", "http://example.com/x.ipynb")
                self.end_headers()
                return
            self.send_response(200)
            self.end_headers()
            page = {"/page": b"<!DOCTYPE html>", "/large.ipynb": b" " * 2000}
            self.wfile.write(page.get(self.path, b"{}"))

        def log_message(self, *arguments: object) -> None:
            """Say nothing."""

    web = HTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=web.serve_forever, args=(0.05,), daemon=True).start()
    own = f"http://127.0.0.1:{web.server_address[1]}"
    monkeypatch.setattr(links, "file_address", lambda link: link.replace("https://example.com", own))
    monkeypatch.setattr(links, "LARGEST", 1000)
    yield asked
    web.shutdown()
    web.server_close()


class TestFetch:
    def test_gives_the_file_and_sends_no_credentials(
        self, server: list[tuple[str, dict[str, str]]], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        (tmp_path / ".netrc").write_text("machine 127.0.0.1 login me password secret\n")
        monkeypatch.setenv("HOME", str(tmp_path))
        assert links.fetch("https://example.com/a file.ipynb?token=1") == b"{}"
        ((path, headers),) = server
        assert path == "/a%20file.ipynb?token=1"
        assert set(headers) == {"Host", "User-Agent", "Accept-Encoding", "Connection"}

    @pytest.mark.parametrize(
        ("path", "message"),
        [
            ("missing.ipynb", "cannot fetch .*missing.ipynb: the answer is 404 Not Found"),
            ("page", ".*/page is a web page, not a notebook"),
            ("moved", "cannot fetch .*/moved: only https links are fetched"),
            ("large.ipynb", "cannot fetch .*large.ipynb: the file is larger than"),
        ],
    )
    def test_refuses(self, server: list[tuple[str, dict[str, str]]], path: str, message: str) -> None:
        with pytest.raises(NotebookError, match=message):
            links.fetch(f"https://example.com/{path}")

    def test_says_what_the_system_says(self) -> None:
        with pytest.raises(NotebookError, match=r"cannot fetch https://localhost:1/x\.ipynb: .*refused"):
            links.fetch("https://localhost:1/x.ipynb")


class TestCommand:
    @pytest.mark.parametrize(
        ("link", "message"),
        [
            (
                "http://example.com/x.ipynb",
                "x.ipynb: DDP001 error: http://example.com/x.ipynb: only https links are fetched",
            ),
        ],
    )
    def test_refuses_with_one_line_and_writes_nothing(
        self, command: Command, tmp_path: Path, link: str, message: str
    ) -> None:
        result = command(link, "train.py")
        assert result.exit_code == 2
        assert message in result.stdout
        assert list(tmp_path.iterdir()) == []
