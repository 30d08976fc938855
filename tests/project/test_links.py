"""Links: where the file is that one shows, and what is fetched from a server of this test's own."""

from __future__ import annotations

import socket
import ssl
import subprocess
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from nb2ddp.project.files import Job
from nb2ddp.project.links import Fetcher, file_address, file_name, is_link
from nb2ddp.results import NotebookError
from tests.command import Command
from tests.notebooks import text

NOTEBOOK = "unslothai/notebooks/main/nb/Llama3.1_(8B)-Alpaca.ipynb"
BLOB = "unslothai/notebooks/blob/main/nb/Llama3.1_(8B)-Alpaca.ipynb"
RAW = f"https://raw.githubusercontent.com/{NOTEBOOK}"
#: A public address, which the connections of these tests turn into that of the server here.
PUBLIC = "93.184.216.34"


class TestAddress:
    @pytest.mark.parametrize(
        ("link", "address"),
        [
            (f"https://colab.research.google.com/github/{BLOB}", RAW),
            (f"https://github.com/{BLOB}", RAW),
            (f"https://github.com/{BLOB}?plain=1#L3", RAW),
            (f"https://github.com/{BLOB.replace('/blob/', '/raw/')}", RAW),
            (RAW, RAW),
            (f"https://molab.marimo.io/github/{BLOB}", RAW),
            (f"https://nbviewer.org/github/{BLOB}", RAW),
            (f"https://www.kaggle.com/notebooks/welcome?src=https://github.com/{BLOB}&accelerator=nvidiaTeslaT4", RAW),
            ("https://gist.github.com/someone/0a1b2c", "https://gist.githubusercontent.com/someone/0a1b2c/raw"),
            (
                "https://colab.research.google.com/gist/someone/0a1b2c/x.ipynb",
                "https://gist.githubusercontent.com/someone/0a1b2c/raw/x.ipynb",
            ),
            (
                "https://colab.research.google.com/drive/1aB-c_2?usp=sharing",
                "https://drive.google.com/uc?export=download&id=1aB-c_2",
            ),
            (
                "https://colab.research.google.com/#fileId=https%3A//huggingface.co/o/m/blob/main/x.ipynb",
                "https://huggingface.co/o/m/resolve/main/x.ipynb",
            ),
            (
                "https://huggingface.co/datasets/o/d/blob/main/nb/x.ipynb",
                "https://huggingface.co/datasets/o/d/resolve/main/nb/x.ipynb",
            ),
            ("https://gitlab.com/g/p/-/blob/main/x.ipynb", "https://gitlab.com/g/p/-/raw/main/x.ipynb"),
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


@dataclass
class Server:
    """A web server with a certificate for any name below `example.com`, and what was asked of it."""

    port: int
    context: ssl.SSLContext
    asked: list[tuple[str, dict[str, str]]]
    addresses: dict[str, list[str]] = field(default_factory=dict)
    connected: list[str] = field(default_factory=list)

    def fetcher(self, largest: int = 2**20, longest: float = 10.0) -> Fetcher:
        return Fetcher(self.resolve, self.connect, self.context, largest, longest)

    def resolve(self, host: str, port: int) -> list[str]:
        return self.addresses.get(host, [PUBLIC])

    def connect(self, address: str, port: int, timeout: float) -> socket.socket:
        self.connected.append(address)
        return socket.create_connection(("127.0.0.1", self.port), timeout)


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("certificate") / "both.pem"
    command = "openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=example.com"
    names = ["-addext", "subjectAltName=DNS:example.com,DNS:*.example.com"]
    files = ["-keyout", str(path), "-out", str(path.with_name("certificate.pem"))]
    subprocess.run([*command.split(), *names, *files], check=True, capture_output=True)
    path.write_text(path.read_text() + path.with_name("certificate.pem").read_text())
    return path


@pytest.fixture
def server(certificate: Path) -> Iterator[Server]:
    asked: list[tuple[str, dict[str, str]]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append((self.path, dict(self.headers)))
            onward = {"/moved": "/x.ipynb", "/elsewhere": "https://other.example.com/x.ipynb", "/circle": "/circle"}
            onward |= {"/plain": "http://example.com/x.ipynb", "/inside": "https://inside.example.com/x.ipynb"}
            if self.path in onward:
                self.send_response(302)
                self.send_header("Location", onward[self.path])
                self.end_headers()
                return
            if self.path == "/missing.ipynb":
                self.send_error(404)
                return
            self.send_response(200)
            if self.path == "/said.ipynb":
                self.send_header("Content-Length", str(200 * 2**20))
            self.end_headers()
            if self.path == "/slow.ipynb":
                for _ in range(50):
                    self.wfile.write(b" ")
                    time.sleep(0.1)
            elif self.path == "/large.ipynb":
                self.wfile.write(b" " * (2**20 + 1))
            else:
                self.wfile.write(b"<!DOCTYPE html>" if self.path == "/page" else text().encode())

        def log_message(self, *arguments: object) -> None:
            """Say nothing."""

    web = HTTPServer(("127.0.0.1", 0), Handler)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    web.socket = context.wrap_socket(web.socket, server_side=True)
    web.handle_error = lambda *_: None  # type: ignore[method-assign]  # a client that leaves is no news
    thread = threading.Thread(target=web.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    trust = ssl.create_default_context(cafile=str(certificate.with_name("certificate.pem")))
    yield Server(web.server_address[1], trust, asked)
    web.shutdown()
    web.server_close()


class TestFetch:
    @pytest.mark.parametrize("path", ["x.ipynb", "moved", "elsewhere"])
    def test_follows_to_the_file(self, server: Server, path: str) -> None:
        assert server.fetcher().fetch(f"https://example.com/{path}") == text().encode()
        assert set(server.connected) == {PUBLIC}, "the address that was checked is the one that is connected to"

    def test_sends_no_credentials(self, server: Server, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        (tmp_path / ".netrc").write_text("machine example.com login me password secret\n")
        monkeypatch.setenv("HOME", str(tmp_path))
        server.fetcher().fetch("https://example.com/a file.ipynb?token=1")
        ((path, headers),) = server.asked
        assert path == "/a%20file.ipynb?token=1"
        assert set(headers) == {"Host", "User-Agent", "Accept-Encoding"}

    @pytest.mark.parametrize(
        ("link", "message"),
        [
            ("https://example.com/missing.ipynb", "cannot fetch .*missing.ipynb: the answer is 404 Not Found"),
            ("https://example.com/page", "https://example.com/page is a web page, not a notebook"),
            ("https://example.com/plain", "cannot fetch http://example.com/x.ipynb: only https links are fetched"),
            ("https://example.com/inside", "inside.example.com is 127.0.0.1, which is not a public address"),
            ("https://both.example.com/x.ipynb", "both.example.com is 10.0.0.7, which is not a public address"),
            ("https://meta.example.com/x.ipynb", "169.254.169.254, which is not a public address"),
            ("https://six.example.com/x.ipynb", "::1, which is not a public address"),
            ("https://mapped.example.com/x.ipynb", "::ffff:127.0.0.1, which is not a public address"),
            ("https://none.example.com/x.ipynb", "none.example.com has no address"),
            ("https://example.com/circle", "more than 5 redirections"),
            ("https://example.com/said.ipynb", "the file is larger than 1 MiB"),
            ("https://example.com/large.ipynb", "the file is larger than 1 MiB"),
            ("https://me:secret@example.com/x.ipynb", "links with a user name or password are not fetched"),
            ("https://example.org/x.ipynb", "certificate"),
        ],
    )
    def test_refuses(self, server: Server, link: str, message: str) -> None:
        server.addresses = {
            "inside.example.com": ["127.0.0.1"],
            "both.example.com": [PUBLIC, "10.0.0.7"],
            "meta.example.com": ["169.254.169.254"],
            "six.example.com": ["::1"],
            "mapped.example.com": ["::ffff:127.0.0.1"],
            "none.example.com": [],
        }
        with pytest.raises(NotebookError, match=message):
            server.fetcher().fetch(link)
        assert set(server.connected) <= {PUBLIC}

    def test_says_where_a_name_leads_nowhere(self) -> None:
        def resolve(host: str, port: int) -> list[str]:
            raise socket.gaierror(-2, "Name or service not known")

        said = r"nowhere\.example is not found \(Name or service not known\): check the link and the network$"
        with pytest.raises(NotebookError, match=said):
            Fetcher(resolve).fetch("https://nowhere.example/x.ipynb")

    def test_says_what_the_system_says_without_its_number(self) -> None:
        def connect(address: str, port: int, timeout: float) -> socket.socket:
            raise ConnectionRefusedError(111, "Connection refused")

        with pytest.raises(NotebookError, match=r"cannot fetch https://example\.com/x\.ipynb: Connection refused$"):
            Fetcher(lambda host, port: [PUBLIC], connect).fetch("https://example.com/x.ipynb")

    def test_ends_in_time(self, server: Server) -> None:
        start = time.monotonic()
        with pytest.raises(NotebookError, match=r"slow.ipynb: not complete after 0.5 seconds"):
            server.fetcher(longest=0.5).fetch("https://example.com/slow.ipynb")
        assert time.monotonic() - start < 3


class TestCommand:
    @pytest.mark.parametrize(
        ("link", "message"),
        [
            (
                "http://example.com/x.ipynb",
                "x.ipynb: DDP001 error: http://example.com/x.ipynb: only https links are fetched",
            ),
            ("https://127.0.0.1/x.ipynb", "127.0.0.1 is 127.0.0.1, which is not a public address"),
            ("https://localhost:1/x.ipynb", ", which is not a public address"),
        ],
    )
    def test_refuses_with_one_line_and_writes_nothing(
        self, command: Command, tmp_path: Path, link: str, message: str
    ) -> None:
        result = command(link, "train.py")
        assert result.exit_code == 2
        assert message in result.stdout
        assert list(tmp_path.iterdir()) == []

    def test_job_of_a_link_reads_no_file(self) -> None:
        assert not Job(Path("x.ipynb"), Path("t.py"), None, "https://example.com/x.ipynb").is_file  # type: ignore[arg-type]
