"""Fetch a notebook that a link names.

The link may be one that a browser shows, as Unsloth's pages have them; a table says where the file itself is. Size,
time and addresses are limited: anyone may have written the link, and this machine may reach hosts that its author
cannot.
"""

from __future__ import annotations

import ipaddress
import re
import socket
import ssl
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from http.client import HTTPException, HTTPResponse, HTTPSConnection
from pathlib import PurePosixPath
from typing import Final
from urllib.parse import parse_qs, quote, unquote, urljoin, urlsplit

from nb2ddp import __version__
from nb2ddp.results import NotebookError

#: No notebook is larger, with its pictures; in bytes.
LARGEST: Final = 100 * 2**20
#: Seconds until all of it must be here.
LONGEST: Final = 60.0
_REDIRECTS: Final = 5
_CHUNK: Final = 2**16
_WEB_PAGE = re.compile(rb"\s*<(!doctype html|html)", re.IGNORECASE)

#: Where the file is that a page shows: a pattern of the address without `https://`, and the address of the file.
TABLE: Final[tuple[tuple[str, str], ...]] = (
    (r"(?:www\.)?github\.com/([^/]+/[^/]+)/(?:blob|raw)/(.+)", r"raw.githubusercontent.com/\1/\2"),
    (r"colab\.research\.google\.com/github/([^/]+/[^/]+)/blob/(.+)", r"raw.githubusercontent.com/\1/\2"),
    (r"molab\.marimo\.io/github/([^/]+/[^/]+)/blob/(.+)", r"raw.githubusercontent.com/\1/\2"),
    (r"nbviewer\.(?:jupyter\.)?org/github/([^/]+/[^/]+)/blob/(.+)", r"raw.githubusercontent.com/\1/\2"),
    (r"gist\.github\.com/([^/]+/[0-9a-f]+)/?", r"gist.githubusercontent.com/\1/raw"),
    (r"colab\.research\.google\.com/gist/([^/]+/[0-9a-f]+)/?", r"gist.githubusercontent.com/\1/raw"),
    (r"colab\.research\.google\.com/gist/([^/]+/[0-9a-f]+)/([^/]+)", r"gist.githubusercontent.com/\1/raw/\2"),
    (r"colab\.research\.google\.com/drive/([\w-]+)", r"drive.google.com/uc?export=download&id=\1"),
    (r"drive\.google\.com/file/d/([\w-]+)(?:/view)?", r"drive.google.com/uc?export=download&id=\1"),
    (r"(?:www\.)?huggingface\.co/(.+)/blob/(.+)", r"huggingface.co/\1/resolve/\2"),
    (r"gitlab\.com/(.+)/-/blob/(.+)", r"gitlab.com/\1/-/raw/\2"),
)
#: Pages that open a notebook of another place, which a parameter names.
_OPENERS: Final = {
    "colab.research.google.com": "fileId",
    "www.kaggle.com": "src",
    "kaggle.com": "src",
}
_KAGGLE_PAGE = re.compile(r"(?:www\.)?kaggle\.com/(?:code|kernels)/(?P<name>[^/]+/[^/]+)/?")


def is_link(argument: str) -> bool:
    """True for an address of any scheme; no file name looks like one."""
    return re.match(r"[A-Za-z][A-Za-z0-9+.-]*://", argument) is not None


def file_address(link: str) -> str:
    """Return the address of the file that a link shows.

    Raises:
        NotebookError: the file is not public, or the link is not an https link.
    """
    parts = urlsplit(link)
    if parts.scheme.lower() != "https" or not parts.hostname:
        raise NotebookError(f"{link}: only https links are fetched")
    parameter = _OPENERS.get(parts.hostname, "")
    named = {**parse_qs(parts.query), **parse_qs(parts.fragment)}.get(parameter, [])
    if named and is_link(named[0]):
        return file_address(named[0])
    page = f"{parts.netloc}{parts.path}"
    if match := _KAGGLE_PAGE.fullmatch(page):
        raise NotebookError(
            f"{link}: Kaggle requires a login; use `kaggle kernels pull {match['name']}`, "
            "or File > Download notebook on the notebook's page"
        )
    for pattern, address in TABLE:
        if match := re.fullmatch(pattern, page):
            return f"https://{match.expand(address)}"
    return parts._replace(fragment="").geturl()


def file_name(link: str) -> str:
    """Return the notebook's name: the last part of the file's address, or else of the link."""
    addresses = [link]
    with suppress(NotebookError):
        addresses.insert(0, file_address(link))
    for address in addresses:
        name = unquote(PurePosixPath(urlsplit(address).path).name)
        if re.search(r"\.(ipynb|py)$", name, re.IGNORECASE):
            return name
    return re.sub(r"\W+", "-", name).strip("-") or "notebook"


def resolve(host: str, port: int) -> list[str]:
    """Return the addresses of a host, as the system resolves them."""
    return [str(found[4][0]) for found in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)]


def connect(address: str, port: int, timeout: float) -> socket.socket:
    """Connect to an address."""
    return socket.create_connection((address, port), timeout)


@dataclass(frozen=True)
class Fetcher:
    """How to fetch files.

    Attributes:
        resolve: the addresses of a host and port.
        connect: a connection to one of them, within some seconds.
        context: what says whose certificates count; None takes the system's.
        largest: bytes of the file.
        longest: seconds for all of it.
    """

    resolve: Callable[[str, int], Sequence[str]] = resolve
    connect: Callable[[str, int, float], socket.socket] = connect
    context: ssl.SSLContext | None = None
    largest: int = LARGEST
    longest: float = LONGEST

    def fetch(self, link: str) -> bytes:
        """Return the content of the file that a link shows, without sending credentials.

        Raises:
            NotebookError: it is missing, too large, too slow, or not public; the message names the request and
                the answer.
        """
        address = file_address(link)
        until = time.monotonic() + self.longest
        for _ in range(_REDIRECTS + 1):
            try:
                answer = self._ask(address, until)
            except (OSError, HTTPException, ValueError) as error:
                late = isinstance(error, TimeoutError) or time.monotonic() > until
                message = getattr(error, "strerror", None) or str(error) or type(error).__name__
                reason = f"not complete after {self.longest:g} seconds" if late else message
                raise NotebookError(f"cannot fetch {address}: {reason}") from None
            if isinstance(answer, bytes):
                if _WEB_PAGE.match(answer):
                    raise NotebookError(f"{address} is a web page, not a notebook; link to the file itself")
                return answer
            address = answer
        raise NotebookError(f"cannot fetch {link}: more than {_REDIRECTS} redirections")

    def _ask(self, address: str, until: float) -> bytes | str:
        """Return the content at an address, or the address that it redirects to."""
        parts = urlsplit(address)
        if parts.scheme != "https" or not parts.hostname:
            raise ValueError("only https links are fetched")
        if parts.username or parts.password:
            raise ValueError("links with a user name or password are not fetched")
        port = parts.port or 443
        connection = _Connection(parts.hostname, self._checked(parts.hostname, port), port, self, until)
        watch = threading.Timer(max(0.0, until - time.monotonic()), connection.cut)
        watch.start()
        try:
            target = quote(parts._replace(scheme="", netloc="", fragment="").geturl() or "/", safe="%/?&=:@!$'()*+,;~")
            headers = {"User-Agent": f"nb2ddp/{__version__}", "Accept-Encoding": "identity"}
            connection.request("GET", target, headers=headers)
            answer = connection.getresponse()
            if answer.status in (301, 302, 303, 307, 308) and (onward := answer.getheader("Location")):
                return urljoin(address, onward)
            if answer.status != 200:
                raise ValueError(f"the answer is {answer.status} {answer.reason}")
            return self._content(answer, until)
        finally:
            watch.cancel()
            connection.close()

    def _checked(self, host: str, port: int) -> str:
        """Return an address of a host; all its addresses must be public."""
        try:
            addresses = list(self.resolve(host, port))
        except socket.gaierror as error:
            raise ValueError(f"{host} is not found ({error.strerror}): check the link and the network") from None
        for address in addresses:
            if not ipaddress.ip_address(address).is_global or ipaddress.ip_address(address).is_multicast:
                raise ValueError(f"{host} is {address}, which is not a public address")
        if not addresses:
            raise ValueError(f"{host} has no address")
        return addresses[0]

    def _content(self, answer: HTTPResponse, until: float) -> bytes:
        limit = f"the file is larger than {self.largest // 2**20} MiB"
        if int(answer.getheader("Content-Length") or 0) > self.largest:
            raise ValueError(limit)
        content = bytearray()
        while chunk := answer.read(_CHUNK):
            content += chunk
            if len(content) > self.largest:
                raise ValueError(limit)
        if time.monotonic() > until:
            raise TimeoutError
        return bytes(content)


class _Connection(HTTPSConnection):
    """A connection to a checked address of a host."""

    def __init__(self, host: str, address: str, port: int, fetcher: Fetcher, until: float) -> None:
        context = fetcher.context or ssl.create_default_context()
        super().__init__(host, port, context=context)
        self._checked, self._fetcher, self._until, self._tls = address, fetcher, until, context
        self._open: socket.socket | None = None

    def connect(self) -> None:
        """Connect to the checked address; the certificate must be the host's."""
        left = self._until - time.monotonic()
        if left <= 0:
            raise TimeoutError
        plain = self._fetcher.connect(self._checked, self.port, left)
        self.sock = self._open = self._tls.wrap_socket(plain, server_hostname=self.host)

    def cut(self) -> None:
        """Stop reading when the time is up."""
        if self._open is not None:
            with suppress(OSError):
                self._open.shutdown(socket.SHUT_RDWR)
