"""Fetch a notebook that a link names.

The link may lead to a page for a browser, as those on Unsloth's pages do; a table maps it to the file itself.
"""

from __future__ import annotations

import re
from contextlib import suppress
from http.client import HTTPException
from pathlib import PurePosixPath
from typing import Any
from urllib.error import HTTPError
from urllib.parse import parse_qs, quote, unquote, urlsplit
from urllib.request import HTTPRedirectHandler, Request, build_opener

from nb2ddp import __version__
from nb2ddp.results import NotebookError
from nb2ddp.toml import tables

#: The size of the largest notebook to fetch, with its pictures, in bytes.
LARGEST = 100 * 2**20
#: Seconds to wait for the server.
_SECONDS = 30
_WEB_PAGE = re.compile(rb"\s*<(!doctype html|html)", re.IGNORECASE)

_KAGGLE_PAGE = re.compile(r"(?:www\.)?kaggle\.com/(?:code|kernels)/(?P<name>[^/]+/[^/]+)/?")


def is_link(argument: str) -> bool:
    """Return whether an argument is an address of any scheme; no file name looks like one."""
    return re.match(r"[A-Za-z][A-Za-z0-9+.-]*://", argument) is not None


def file_address(link: str) -> str:
    """Return the address of the file that a link shows.

    Raises:
        NotebookError: the file is not public, or the link is not an https link.
    """
    parts = urlsplit(link)
    if parts.scheme.lower() != "https" or not parts.hostname:
        raise NotebookError(f"{link}: only https links are fetched")
    parameter = tables(__file__)["openers"].get(parts.hostname, "")
    named = {**parse_qs(parts.query), **parse_qs(parts.fragment)}.get(parameter, [])
    if named and is_link(named[0]):
        return file_address(named[0])
    page = f"{parts.netloc}{parts.path}"
    if match := _KAGGLE_PAGE.fullmatch(page):
        raise NotebookError(
            f"{link}: Kaggle requires a login; use `kaggle kernels pull {match['name']}`, "
            "or File > Download notebook on the notebook's page"
        )
    for row in tables(__file__)["page"]:
        if match := re.fullmatch(row["address"], page):
            return f"https://{match.expand(row['file'])}"
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


class _OnlyHttps(HTTPRedirectHandler):
    """Follow only redirections to https."""

    def redirect_request(self, req: Request, fp: Any, code: int, msg: str, headers: Any, newurl: str) -> Request | None:
        """Refuse another scheme."""
        if urlsplit(newurl).scheme != "https":
            raise ValueError("only https links are fetched")
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def fetch(link: str) -> bytes:
    """Return the content of the file that a link shows, without sending credentials.

    Raises:
        NotebookError: it is missing, too large, or not public; the message names the request and the answer.
    """
    address = file_address(link)
    request = Request(quote(address, safe="%/?&=:@!$'()*+,;~"), headers={"User-Agent": f"nb2ddp/{__version__}"})
    try:
        with build_opener(_OnlyHttps).open(request, timeout=_SECONDS) as answer:
            content: bytes = answer.read(LARGEST + 1)
    except HTTPError as error:
        raise NotebookError(f"cannot fetch {address}: the answer is {error.code} {error.reason}") from None
    except (OSError, HTTPException, ValueError) as error:
        raise NotebookError(f"cannot fetch {address}: {getattr(error, 'reason', None) or error}") from None
    if len(content) > LARGEST:
        raise NotebookError(f"cannot fetch {address}: the file is larger than {LARGEST // 2**20} MiB")
    if _WEB_PAGE.match(content):
        raise NotebookError(f"{address} is a web page, not a notebook; link to the file itself")
    return content
