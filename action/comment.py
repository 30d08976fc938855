"""Put a summary into one comment on a pull request, which later runs of the job bring up to date.

Usage: python comment.py SUMMARY.md, with NB2DDP_TOKEN and the variables that GitHub gives to a job. Outside a pull
request it does nothing, and it does not begin with a comment that has nothing to show. Where the token may not write
(in a pull request from a fork, or without the permission) it says so and ends with 0: the summary is in the job's own
page too.

https://docs.github.com/en/rest/issues/comments
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

#: GitHub takes no more characters.
LARGEST = 65536
#: Begins what a click unfolds, which is left out first.
_FOLDED = "\n<details><summary>\n"
_FAILED = " | failed | "
_SECONDS = 30


def main(arguments: list[str]) -> int:
    number, file = _pull_request(), Path(arguments[0])
    if number is None or not file.exists():
        return 0
    try:
        _comment(number, file.read_text(encoding="utf-8"))
    except OSError as error:  # urllib's among them
        print(f"nb2ddp: no comment on the pull request ({error}); the summary is in the job's page.")
    return 0


def _pull_request() -> int | None:
    """The number of the pull request that the job runs for."""
    event = os.environ.get("GITHUB_EVENT_PATH")
    document = json.loads(Path(event).read_text(encoding="utf-8")) if event else {}
    number = document.get("pull_request", {}).get("number")
    return number if isinstance(number, int) else None


def _marker() -> str:
    """By what the comment of this job is known."""
    job = "\0".join(os.environ.get(name, "") for name in ("GITHUB_WORKFLOW", "GITHUB_JOB"))
    return f"<!-- nb2ddp {hashlib.sha256(job.encode()).hexdigest()[:16]} -->"


def _body(summary: str) -> str:
    """The comment: as many of the summary's diffs as it has room for, and where the others are."""
    head, *folded = summary.split(_FOLDED)
    run = f"{os.environ.get('GITHUB_SERVER_URL', '')}/{os.environ['GITHUB_REPOSITORY']}/actions/runs"
    rest = f"\n\nMore in [the job's summary]({run}/{os.environ.get('GITHUB_RUN_ID', '')}).\n"
    room = LARGEST - len(_marker()) - len(rest) - 1
    if len(head) > room:
        return f"{_marker()}\n{head[:room].rpartition(chr(10))[0]}{rest}"
    kept = head
    for part in folded:
        if len(kept) + len(_FOLDED) + len(part) > room:
            return f"{_marker()}\n{kept}{rest}"
        kept += _FOLDED + part
    return f"{_marker()}\n{kept}"


def _comment(number: int, summary: str) -> None:
    """Write the comment anew, or for the first time.

    Raises:
        OSError: the API does not take it.
    """
    issues = f"/repos/{os.environ['GITHUB_REPOSITORY']}/issues"
    body = _body(summary)
    for each in _all(f"{issues}/{number}/comments"):
        if str(each["body"]).startswith(_marker()):
            if each["body"] != body:
                _ask("PATCH", f"{issues}/comments/{each['id']}", body)
            return
    if _FOLDED in summary or _FAILED in summary:
        _ask("POST", f"{issues}/{number}/comments", body)


def _all(path: str) -> Iterator[dict[str, Any]]:
    page = 1
    while found := _ask("GET", f"{path}?per_page=100&page={page}"):
        yield from found
        page += 1


def _ask(method: str, path: str, body: str | None = None) -> Any:
    headers = {
        "Accept": "application/vnd.github+json",
        "Authorization": f"Bearer {os.environ.get('NB2DDP_TOKEN', '')}",
        "Content-Type": "application/json",
        "X-GitHub-Api-Version": "2022-11-28",
    }
    data = None if body is None else json.dumps({"body": body}).encode()
    address = os.environ.get("GITHUB_API_URL", "https://api.github.com") + path
    request = urllib.request.Request(address, data, headers, method=method)
    with urllib.request.urlopen(request, timeout=_SECONDS) as answer:
        return json.loads(answer.read() or b"null")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
