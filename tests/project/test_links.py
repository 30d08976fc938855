"""Links: the address of the file that a link shows, and fetches from a server that the tests start."""

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
from tests.examples import rows


@pytest.mark.parametrize(("link", "address"), rows(__file__, "address"))
def test_of_the_file_that_a_link_shows(link: str, address: list[str]) -> None:
    assert is_link(link)
    assert [file_address(link)] == address


@pytest.mark.parametrize(("link", "message"), rows(__file__, "none"))
def test_of_none(link: str, message: list[str]) -> None:
    with pytest.raises(NotebookError, match=message[0]):
        file_address(link)


@pytest.mark.parametrize(("link", "name"), rows(__file__, "name"))
def test_name(link: str, name: list[str]) -> None:
    assert [file_name(link)] == name


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[tuple[str, dict[str, str]]]]:
    """The requests to a web server that replaces the addresses below `https://example.com`."""
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
            """Log nothing."""

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


def test_the_command_refuses_with_one_line_and_writes_nothing(command: Command, tmp_path: Path) -> None:
    result = command("http://example.com/x.ipynb", "train.py")
    assert result.exit_code == 2
    assert "x.ipynb: DDP001 error: http://example.com/x.ipynb: only https links are fetched" in result.stdout
    assert list(tmp_path.iterdir()) == []
