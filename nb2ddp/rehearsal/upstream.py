"""The real hub and the user's cache of it: whether the hub answers, and the settings for requests to it."""

from __future__ import annotations

import contextlib
import os
import threading
import urllib.error
import urllib.request

from nb2ddp.estimate import hub

_LONGEST = 3.0  # seconds that the hub has for an answer


def environment(*, offline: bool) -> dict[str, str]:
    """Return the environment variables of a process that builds stand-ins; processes that run the script lack them.

    Args:
        offline: do not ask the hub, even if it answers.
    """
    own = {"REHEARSAL_CACHE": str(hub.cache())}
    endpoint = os.environ.get("HF_ENDPOINT") or "https://huggingface.co"
    if offline or hub.is_offline() or not answers(endpoint):
        return own | {"HF_HUB_OFFLINE": "1"}
    token = {"HF_TOKEN": os.environ.get("HF_TOKEN", ""), "HF_TOKEN_PATH": str(hub.home() / "token")}
    times = dict.fromkeys(("HF_HUB_DOWNLOAD_TIMEOUT", "HF_HUB_ETAG_TIMEOUT"), "5")
    without_proxy = os.environ.get("NO_PROXY") or os.environ.get("no_proxy", "")
    return own | token | times | {"HF_ENDPOINT": endpoint, "NO_PROXY": without_proxy}


def answers(endpoint: str) -> bool:
    """Return whether an address gives any answer, even an error, to one request within three seconds."""
    heard = []

    def ask() -> None:
        with contextlib.suppress(OSError, ValueError):
            with contextlib.suppress(urllib.error.HTTPError):
                urllib.request.urlopen(urllib.request.Request(endpoint, method="HEAD"), timeout=_LONGEST).close()
            heard.append(True)

    # The lookup of a name has no time limit. It runs in a thread, which does not block the end of the program.
    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    thread.join(_LONGEST)
    return bool(heard)
