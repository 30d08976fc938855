"""The real hub and this user's cache of it: whether it answers, and what is needed to ask it."""

from __future__ import annotations

import contextlib
import os
import threading
import urllib.error
import urllib.request

from nb2ddp.estimate import hub

_LONGEST = 3.0  # seconds that the hub has to answer at all


def environment(*, offline: bool) -> dict[str, str]:
    """What a process that builds stand-ins has in its environment; those that run the script have none of it.

    Args:
        offline: do not ask the hub, whether it answers or not.
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
    """Whether there is anything that answers at an address, with whatever: asked once, for three seconds at most."""
    heard = []

    def ask() -> None:
        with contextlib.suppress(OSError, ValueError):
            with contextlib.suppress(urllib.error.HTTPError):
                urllib.request.urlopen(urllib.request.Request(endpoint, method="HEAD"), timeout=_LONGEST).close()
            heard.append(True)

    # Names are looked up without a time limit: hence a thread, which nobody waits for at the end.
    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    thread.join(_LONGEST)
    return bool(heard)
